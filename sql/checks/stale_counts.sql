-- The counts that embedding_metadata holds are those of the tables; a new file has none.
SELECT c.key
FROM (SELECT 'total_chunks' AS key, count(*) AS n FROM documents UNION ALL SELECT 'total_source_documents', count(*) FROM source_documents) AS c
LEFT JOIN embedding_metadata AS m ON m.key = c.key
WHERE coalesce(m.value, '0') <> CAST(c.n AS VARCHAR)
ORDER BY c.key;
