-- The postings are what the chunks' words give today: same terms, counts and lengths.
WITH fields AS (
    SELECT rid, visible(text, shown) AS field, 1 AS in_text, 0 AS in_heading FROM documents
    UNION ALL
    SELECT rid, fts_main_documents.heading_text(heading_path, chunk_index, metadata_, tags), 0, 1 FROM documents
),
tokens AS (
    SELECT rid, unnest(fts_main_documents.plain_words(field)) AS word, in_text, in_heading, 1 AS counts FROM fields
    UNION ALL
    SELECT rid, unnest(fts_main_documents.compound_parts(field) || fts_main_documents.run_characters(fts_main_documents.composed(field))), in_text, in_heading, 0 FROM fields
),
lengths AS (SELECT rid, sum(in_text * counts) AS len, sum(in_heading * counts) AS heading_len FROM tokens GROUP BY rid),
expected AS (
    SELECT t.rid, coalesce(w.term, '?') AS term, sum(t.in_text) AS tf, sum(t.in_heading) AS heading_tf,
           any_value(l.len) AS len, any_value(l.heading_len) AS heading_len
    FROM tokens AS t JOIN lengths AS l ON l.rid = t.rid LEFT JOIN fts_main_documents.words AS w ON w.word = t.word
    GROUP BY t.rid, coalesce(w.term, '?')
),
found AS (
    SELECT p.rid, coalesce(d.term, '?') AS term, p.tf, p.heading_tf, p.len, p.heading_len
    FROM fts_main_documents.postings AS p LEFT JOIN fts_main_documents.dict AS d ON d.termid = p.termid
)
SELECT DISTINCT coalesce(d.node_id, 'rid ' || x.rid) AS node_id
FROM (
    (FROM expected EXCEPT ALL FROM found)
    UNION ALL
    (FROM found EXCEPT ALL FROM expected)
) AS x LEFT JOIN documents AS d ON d.rid = x.rid
ORDER BY node_id;
