COPY documents (doc_id, file_path, file_name, text, metadata_, collection, checksum, mime, size_bytes, modified_at, tags, body_start,
    page_starts, chunk_policy, digest)
FROM STDIN (FORMAT BINARY)
