-- Removes the chunks of documents; what their words were read from is returned.
DELETE FROM chunks
WHERE doc_id = ANY(%(doc_ids)s::text[])
RETURNING rid, content, shown, heading_path, chunk_index, metadata_::text, tags, doc_id;
