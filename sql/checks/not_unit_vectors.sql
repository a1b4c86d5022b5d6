-- A vector has length 1; one that is not finite fails as well.
SELECT node_id FROM documents WHERE NOT coalesce(abs(array_inner_product(embedding, embedding) - 1) < 0.001, false) ORDER BY node_id;
