-- A vector has length 1; one that is not finite, or has a NULL in it, fails as well.
SELECT node_id FROM documents WHERE NOT coalesce(abs(TRY(array_inner_product(embedding, embedding)) - 1) < 0.001, false) ORDER BY node_id;
