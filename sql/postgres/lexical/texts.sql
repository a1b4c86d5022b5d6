-- What the words of chunks are read from.
SELECT rid, content, shown, heading_path, chunk_index, metadata_::text, tags, doc_id
FROM chunks
WHERE rid = ANY(%(rids)s::bigint[])
ORDER BY rid;
