-- The k chunks nearest to a vector by cosine among those that meet conditions, and all that are as near as the last of them except
-- for rounding: every vector is compared. Materialized, since the index would find most of them only.
WITH compared AS MATERIALIZED (
    SELECT rid, embedding <=> %(query_vector)s AS distance FROM chunks WHERE /* conditions */ true
)
SELECT c.rid, c.doc_id, c.chunk_index, c.node_id, c.embedding
FROM compared JOIN chunks AS c USING (rid)
WHERE compared.distance <= (
    SELECT max(nearest.distance) FROM (SELECT distance FROM compared ORDER BY distance LIMIT %(k)s) AS nearest
) + 1e-6;
