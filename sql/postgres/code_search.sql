-- The k chunks nearest to a vector by cosine among those that meet conditions, and all that are as near as the last of them except
-- for rounding, by the sign codes of a DuckDB file: the first ones whose signs differ least from the vector's, then the pool of these in
-- which a difference counts 0 to 3 (low and high are the bits of these weights), then exact cosines. The last column is how many
-- the first ones are. No more signs may differ than most; where that is NULL, than at a part of a sample of the chunks: sorting
-- those alone takes half of the time, and where they are enough, nothing else could be in them. What is in a SELECT of its own is
-- computed once, also where the server keeps a plan for any vector.
WITH differing AS MATERIALIZED (
    SELECT rid, code
    FROM chunks
    WHERE /* conditions */ true
      AND code <~> (SELECT binary_quantize(%(query_vector)s)) <= coalesce(%(most)s::float8, (
          SELECT percentile_disc(%(part)s::float8) WITHIN GROUP (ORDER BY s.code <~> (SELECT binary_quantize(%(query_vector)s)))
          FROM chunks AS s
          WHERE s.rid = ANY(ARRAY(SELECT i * 2654435761 %% (%(last)s + 1) FROM generate_series(1::bigint, %(sample)s) AS i))
      ))
    ORDER BY code <~> (SELECT binary_quantize(%(query_vector)s)), rid
    LIMIT %(first)s
), weighed AS MATERIALIZED (
    SELECT rid
    FROM differing
    ORDER BY ((code & %(low)s::varbit) <~> (SELECT binary_quantize(%(query_vector)s) & %(low)s::varbit))
        + 2 * ((code & %(high)s::varbit) <~> (SELECT binary_quantize(%(query_vector)s) & %(high)s::varbit)), rid
    LIMIT %(pool)s
), near AS MATERIALIZED (
    SELECT rid, embedding <=> %(query_vector)s AS distance FROM weighed JOIN chunks USING (rid)
)
SELECT c.rid, c.doc_id, c.chunk_index, c.node_id, c.embedding, (SELECT count(*) FROM differing)
FROM near JOIN chunks AS c USING (rid)
WHERE near.distance <= (
    SELECT max(nearest.distance) FROM (SELECT distance FROM near ORDER BY distance LIMIT %(k)s) AS nearest
) + 1e-6;
