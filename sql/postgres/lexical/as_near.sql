-- The chunks that meet conditions and are as near to a vector as one of them, but for rounding.
SELECT rid, doc_id, chunk_index, node_id, embedding
FROM chunks
WHERE abs((embedding <=> %(query_vector)s) - (SELECT embedding <=> %(query_vector)s FROM chunks WHERE rid = %(rid)s)) <= 1e-6
  AND (/* conditions */ true)
ORDER BY doc_id, chunk_index;
