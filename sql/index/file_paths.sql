-- The files that documents were read from; a path that is relative is one below the folder of the collection.
SELECT s.doc_id,
       CASE WHEN c.input_dir IS NULL OR starts_with(s.file_path, '/') THEN s.file_path
            ELSE rtrim(c.input_dir, '/') || '/' || s.file_path END AS path
FROM source_documents AS s LEFT JOIN collections AS c ON c.collection = s.collection
WHERE s.doc_id IN (SELECT unnest($1)) AND s.file_path <> ''
ORDER BY s.doc_id;
