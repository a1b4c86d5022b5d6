-- How often the terms of the index are in the chunks of a group, in those it is compared with, and in all chunks. A term is shown as
-- its most common word. A chunk of both counts for the group.
CREATE OR REPLACE TEMP TABLE counted_terms AS
WITH shown AS (
    SELECT d.termid, arg_max(w.word, (w.df, -length(w.word), w.word)) AS word
    FROM fts_main_documents.words AS w JOIN fts_main_documents.dict AS d ON d.term = w.term
    GROUP BY d.termid
), members AS (
    SELECT d.rid, passes(d.rid, d.collection, d.tags, $passing, $collection, $tags_any, $tags_all) AS is_in,
           passes(d.rid, d.collection, d.tags, $against_passing, $against_collection, $against_tags_any, $against_tags_all) AS is_against
    FROM documents AS d
), counts AS (
    SELECT p.termid, CAST(coalesce(sum(p.tf) FILTER (m.is_in), 0) AS DOUBLE) AS n,
           CAST(coalesce(sum(p.tf) FILTER (m.is_against AND NOT m.is_in), 0) AS DOUBLE) AS against, CAST(sum(p.tf) AS DOUBLE) AS background
    FROM fts_main_documents.postings AS p JOIN members AS m ON m.rid = p.rid
    GROUP BY p.termid
)
SELECT 0 AS grp, s.word AS term, c.n, c.against, c.background FROM counts AS c JOIN shown AS s ON s.termid = c.termid;
