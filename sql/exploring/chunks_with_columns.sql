-- The chunks that pass the filters, in reading order, with the key by which their vectors are read and what a reader sees. The loader
-- puts further columns in place of $columns. A damaged vector (not finite, or with a NULL in it) is skipped, as in searches.
SELECT d.rid, d.node_id, visible(d.text, d.shown) AS text $columns
FROM documents AS d LEFT JOIN source_documents AS s ON s.doc_id = d.doc_id
WHERE passes(d.rid, d.collection, d.tags, $passing, $collection, $tags_any, $tags_all)
  AND coalesce(isfinite(TRY(array_inner_product(d.embedding, d.embedding))), false)
ORDER BY d.doc_id, d.chunk_index;
