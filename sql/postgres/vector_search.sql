-- Of the pool chunks nearest to a vector by cosine among those that meet conditions, as the HNSW index finds them, the k nearest
-- and all that are as near as the last of them except for rounding.
WITH near AS MATERIALIZED (
    SELECT rid, embedding <=> %(query_vector)s AS distance
    FROM chunks
    WHERE /* conditions */ true
    ORDER BY embedding <=> %(query_vector)s
    LIMIT %(pool)s
)
SELECT c.rid, c.doc_id, c.chunk_index, c.node_id, c.embedding
FROM near JOIN chunks AS c USING (rid)
WHERE near.distance <= (
    SELECT max(nearest.distance) FROM (SELECT distance FROM near ORDER BY distance LIMIT %(k)s) AS nearest
) + 1e-6;
