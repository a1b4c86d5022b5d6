-- Every chunk with the key by which its vector is read, in reading order; a damaged vector (not finite, or with a NULL in it) is
-- passed over, as searches do.
SELECT node_id, doc_id, rid FROM documents
WHERE coalesce(isfinite(TRY(array_inner_product(embedding, embedding))), false)
ORDER BY doc_id, chunk_index;
