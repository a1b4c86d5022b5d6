-- Every chunk with the key by which its vector is read, in reading order; a damaged vector (not finite, or with a NULL in it) is
-- skipped, as in searches. The fingerprint says whether a chunk is still the same when the map is written.
SELECT node_id, doc_id, rid, hash(text, w0) AS fingerprint FROM documents
WHERE coalesce(isfinite(TRY(array_inner_product(embedding, embedding))), false)
ORDER BY doc_id, chunk_index;
