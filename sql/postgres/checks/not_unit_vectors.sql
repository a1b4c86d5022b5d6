-- Every vector has length 1.
SELECT node_id FROM chunks WHERE abs(vector_norm(embedding) - 1) > 1e-3 ORDER BY doc_id, chunk_index;
