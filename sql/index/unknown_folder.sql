-- Imported documents $doc_ids with a path below a folder that is not known, in a collection that has a folder, are not of that one.
UPDATE source_documents AS s SET file_path = '?/' || s.file_path
WHERE list_contains(CAST($doc_ids AS VARCHAR[]), s.doc_id) AND CASE WHEN s.chunk_policy IS NULL THEN s.checksum <> '' ELSE s.modified_at IS NOT NULL END
    AND s.doc_id = CASE WHEN s.collection = 'default' THEN s.file_path ELSE s.collection || ':' || s.file_path END
    AND s.collection IN (SELECT collection FROM collections WHERE input_dir <> '');
