-- Documents as an export holds them.
SELECT doc_id, file_path, file_name, text, CAST(metadata_ AS VARCHAR) AS metadata_, collection, checksum, mime, size_bytes,
       modified_at, tags, body_start, page_starts, CAST(chunk_policy AS VARCHAR) AS chunk_policy
FROM source_documents
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id;
