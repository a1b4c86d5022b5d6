-- Documents with a path below the folder of their collection get the whole path, before the collection gets another folder.
UPDATE source_documents AS s SET file_path = rtrim(CAST($root AS VARCHAR), '/') || '/' || s.file_path
WHERE s.collection = $collection AND CASE WHEN s.chunk_policy IS NULL THEN s.checksum <> '' ELSE s.modified_at IS NOT NULL END
    AND s.doc_id = CASE WHEN s.collection = 'default' THEN s.file_path ELSE s.collection || ':' || s.file_path END;
