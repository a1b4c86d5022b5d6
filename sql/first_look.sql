-- Examples for the first statements in a shell: a chunk, the last of its headings (or the first words of its text), and the
-- question whose vector was stored last. NULL where there is none.
SELECT d.node_id,
       coalesce(d.heading_path[-1], array_to_string(regexp_extract_all(d.text, '\w+')[1:4], ' ')) AS words,
       (SELECT q.query_text FROM query_embeddings AS q ORDER BY q.created_at DESC, q.query_text LIMIT 1) AS question
FROM (SELECT 1) LEFT JOIN (FROM documents ORDER BY doc_id, chunk_index LIMIT 1) AS d ON true;
