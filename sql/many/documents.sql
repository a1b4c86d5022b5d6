-- Documents as they are stored, with whole paths: the collection may have another folder in another file.
SELECT s.* REPLACE (
    CAST(s.metadata_ AS VARCHAR) AS metadata_,
    CAST(s.chunk_policy AS VARCHAR) AS chunk_policy,
    CASE WHEN CASE WHEN s.chunk_policy IS NULL THEN s.checksum = '' ELSE s.modified_at IS NULL END
            OR s.doc_id <> CASE WHEN s.collection = 'default' THEN s.file_path ELSE s.collection || ':' || s.file_path END
        THEN s.file_path
        ELSE rtrim(coalesce(nullif(c.input_dir, ''), '?'), '/') || '/' || s.file_path END AS file_path
)
FROM source_documents AS s LEFT JOIN collections AS c ON c.collection = s.collection
WHERE s.doc_id IN (SELECT unnest($doc_ids))
ORDER BY s.doc_id;
