-- What is known of every document, with the whole path of its file; its folder is ? where that is not known, after an import.
SELECT s.doc_id, s.collection, s.checksum, s.mime,
    CASE WHEN CASE WHEN s.chunk_policy IS NULL THEN s.checksum = '' ELSE s.modified_at IS NULL END
            OR s.doc_id <> CASE WHEN s.collection = 'default' THEN s.file_path ELSE s.collection || ':' || s.file_path END
        THEN s.file_path
        ELSE rtrim(coalesce(nullif(c.input_dir, ''), '?'), '/') || '/' || s.file_path END AS file_path,
    s.modified_at, s.chunk_policy
FROM source_documents AS s LEFT JOIN collections AS c ON c.collection = s.collection
ORDER BY s.doc_id;
