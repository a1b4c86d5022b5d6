COPY chunks (node_id, content, metadata_, doc_id, collection, chunk_index, i_start, i_end, page, heading_path, tags, checksum,
    shown, metadata, embedding)
FROM STDIN (FORMAT BINARY)
