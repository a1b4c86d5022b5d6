-- The vectors of the chunks of a range of keys; those that map_chunks skips are left out here as well.
SELECT rid, embedding FROM documents
WHERE rid >= $first AND rid < $stop AND coalesce(isfinite(TRY(array_inner_product(embedding, embedding))), false)
ORDER BY rid;
