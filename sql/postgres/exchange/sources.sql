-- Documents as an export holds them.
SELECT doc_id, file_path, file_name, text, metadata_::text AS metadata_, collection, checksum, mime, size_bytes, modified_at, tags,
       body_start, page_starts, chunk_policy::text AS chunk_policy
FROM documents
WHERE doc_id = ANY(%(doc_ids)s::text[])
ORDER BY doc_id;
