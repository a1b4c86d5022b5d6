-- The folder of each collection, ? where none is known.
SELECT DISTINCT s.collection, coalesce(nullif(c.input_dir, ''), '?') AS folder
FROM source_documents AS s LEFT JOIN collections AS c ON c.collection = s.collection
ORDER BY s.collection;
