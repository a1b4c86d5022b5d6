-- Chunks by their ids, as results show them.
SELECT c.node_id, c.content, c.metadata_::text, c.doc_id, c.chunk_index, c.collection, c.heading_path, c.page, c.i_start, c.i_end,
       c.tags, c.shown, c.checksum, d.created_at
FROM chunks AS c JOIN documents AS d ON d.doc_id = c.doc_id
WHERE c.node_id = ANY(%(node_ids)s::text[])
ORDER BY c.doc_id, c.chunk_index;
