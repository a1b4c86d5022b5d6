-- Documents as an export has them: the path of a file is that below the folder that it was read from, or with
-- $absolute_paths the whole path.
SELECT doc_id,
       CASE WHEN $absolute_paths AND input_dir IS NOT NULL AND file_path = name THEN rtrim(input_dir, '/') || '/' || name
            WHEN NOT $absolute_paths AND chunk_policy IS NOT NULL AND ends_with(file_path, '/' || name) THEN name
            ELSE file_path END AS file_path,
       file_name, text, CAST(metadata_ AS VARCHAR) AS metadata_, collection, checksum, mime, size_bytes, modified_at, tags,
       body_start, page_starts, CAST(chunk_policy AS VARCHAR) AS chunk_policy
FROM (
    SELECT *, CASE WHEN collection = 'default' THEN doc_id ELSE doc_id[length(collection) + 2:] END AS name FROM source_documents
) AS d
LEFT JOIN (SELECT collection, input_dir FROM collections) USING (collection)
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id;
