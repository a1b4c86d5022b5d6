-- The counts that embedding_metadata holds are those of the tables.
SELECT m.key
FROM embedding_metadata AS m
WHERE (m.key = 'total_chunks' AND m.value <> (SELECT CAST(count(*) AS VARCHAR) FROM documents))
   OR (m.key = 'total_source_documents' AND m.value <> (SELECT CAST(count(*) AS VARCHAR) FROM source_documents))
ORDER BY m.key;
