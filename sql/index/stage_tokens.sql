-- The words of the chunks in staged_chunks, counted. Parts of compound names and single characters of runs are found,
-- but do not make a chunk longer, as with Lucene's overlapping tokens. The lists are materialized, since they are read twice
-- and their macros take longer to plan than a few chunks to read.
CREATE OR REPLACE TEMP TABLE staged_tokens AS
WITH chosen AS (SELECT rid, visible(text, shown) AS text, heading_path, chunk_index, metadata_, tags FROM documents WHERE rid IN (FROM staged_chunks)),
fields AS (
    SELECT rid, text AS field, true AS in_text FROM chosen
    UNION ALL
    SELECT rid, fts_main_documents.heading_text(heading_path, chunk_index, metadata_, tags), false FROM chosen
),
lists AS MATERIALIZED (
    SELECT rid, in_text, fts_main_documents.plain_words(field) AS plain,
           fts_main_documents.compound_parts(field) || fts_main_documents.run_characters(fts_main_documents.composed(field)) AS more
    FROM fields
),
tokens AS (
    SELECT rid, in_text, unnest(plain) AS word, true AS counts FROM lists
    UNION ALL
    SELECT rid, in_text, unnest(more), false FROM lists
)
SELECT rid, word, CAST(count(*) FILTER (in_text) AS INTEGER) AS tf, CAST(count(*) FILTER (NOT in_text) AS INTEGER) AS heading_tf,
       CAST(count(*) FILTER (in_text AND counts) AS INTEGER) AS len,
       CAST(count(*) FILTER (NOT in_text AND counts) AS INTEGER) AS heading_len
FROM tokens
GROUP BY rid, word;
