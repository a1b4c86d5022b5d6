-- Whether both indexes hold every chunk: one row each.
CREATE OR REPLACE VIEW index_status AS
WITH counts AS (
    SELECT (SELECT count(*) FROM documents) AS chunks,
           (SELECT count(*) FROM documents AS d SEMI JOIN fts_main_documents.docs AS i ON i.rid = d.rid) AS indexed,
           (SELECT count(*) FROM fts_main_documents.docs) AS lengths,
           (SELECT count(*) FROM fts_main_documents.postings) AS postings
)
SELECT 'lexical' AS index_name, chunks, indexed, postings AS entries, chunks = indexed AND chunks = lengths AS in_step FROM counts
UNION ALL
SELECT 'vector', chunks, chunks, chunks, true FROM counts
ORDER BY index_name;
