-- The pool chunks nearest to a vector by cosine among those that meet conditions, as the HNSW index finds them.
SELECT rid, doc_id, chunk_index, node_id, embedding
FROM chunks
WHERE /* conditions */ true
ORDER BY embedding <=> %(query_vector)s
LIMIT %(pool)s;
