-- A chunk is as long as its words are today; the averages of the lexical index are taken from these lengths.
WITH fields AS (
    SELECT rid, visible(text, shown) AS field, true AS in_text FROM documents
    UNION ALL
    SELECT rid, fts_main_documents.heading_text(heading_path, chunk_index, metadata_, tags), false FROM documents
),
lengths AS (SELECT rid, in_text, coalesce(len(fts_main_documents.plain_words(field)), 0) AS len FROM fields)
SELECT DISTINCT d.node_id
FROM lengths AS l JOIN fts_main_documents.docs AS i ON i.rid = l.rid JOIN documents AS d ON d.rid = l.rid
WHERE l.len <> CASE WHEN l.in_text THEN i.len ELSE i.heading_len END
ORDER BY d.node_id;
