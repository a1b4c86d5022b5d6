-- The k chunks nearest to a vector by cosine among those that meet conditions, and all that are as near as the last of them except
-- for rounding, by the sign codes of a DuckDB file: first four pools whose signs differ least from the vector's, then the pool in
-- which a difference counts 0 to 3 (low and high are the bits of these weights), then exact cosines.
WITH differing AS MATERIALIZED (
    SELECT rid, code
    FROM chunks
    WHERE /* conditions */ true
    ORDER BY code <~> binary_quantize(%(query_vector)s), rid
    LIMIT 4 * %(pool)s
), weighed AS MATERIALIZED (
    SELECT rid
    FROM differing
    ORDER BY ((code & %(low)s::varbit) <~> (binary_quantize(%(query_vector)s) & %(low)s::varbit))
        + 2 * ((code & %(high)s::varbit) <~> (binary_quantize(%(query_vector)s) & %(high)s::varbit)), rid
    LIMIT %(pool)s
), near AS MATERIALIZED (
    SELECT rid, embedding <=> %(query_vector)s AS distance FROM weighed JOIN chunks USING (rid)
)
SELECT c.rid, c.doc_id, c.chunk_index, c.node_id, c.embedding
FROM near JOIN chunks AS c USING (rid)
WHERE near.distance <= (
    SELECT max(nearest.distance) FROM (SELECT distance FROM near ORDER BY distance LIMIT %(k)s) AS nearest
) + 1e-6;
