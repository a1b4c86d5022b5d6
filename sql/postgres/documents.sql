-- Documents as they were stored; unknown ids are left out.
SELECT doc_id, text, collection, file_path, file_name, checksum, mime, size_bytes, modified_at, tags, metadata_::text AS metadata_,
       body_start, page_starts
FROM documents
WHERE doc_id = ANY(%(doc_ids)s::text[])
ORDER BY doc_id;
