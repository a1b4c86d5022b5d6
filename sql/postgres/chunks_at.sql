-- The chunks at places, (doc_id, chunk_index) each.
SELECT node_id, content, doc_id, chunk_index, collection, heading_path, page, i_start, i_end, shown
FROM chunks
WHERE (doc_id, chunk_index) IN (SELECT * FROM unnest(%(doc_ids)s::text[], %(indexes)s::integer[]))
ORDER BY doc_id, chunk_index;
