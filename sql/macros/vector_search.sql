-- The k chunks nearest to a vector by cosine, in two stages. First the pool chunks whose signs differ least from the
-- query's, a difference counting 0 to 3 by how far the query is from zero in that dimension; then their exact cosines.
-- A store, or a filter's rows, no larger than the pool is searched exactly. The score is always the exact cosine. A damaged
-- vector (not finite, or with a NULL in it) is skipped.
-- signs is sign_words(query_vector); low and high hold the two bits of the weights, packed in the same way.
CREATE OR REPLACE MACRO vector_search(query_vector, signs, low, high, k := 10, pool := 750,
        collection := NULL, tags_any := NULL, tags_all := NULL, passing := NULL) AS TABLE
    WITH candidates AS (
        SELECT d.rid
        FROM documents AS d
        WHERE passes(d.rid, d.collection, d.tags, passing, collection, tags_any, tags_all)
        ORDER BY CAST(0 AS INTEGER)
            + bit_count(xor(d.w0, CAST(signs AS HUGEINT[])[1]) & CAST(low AS HUGEINT[])[1])
            + bit_count(xor(d.w1, CAST(signs AS HUGEINT[])[2]) & CAST(low AS HUGEINT[])[2])
            + bit_count(xor(d.w2, CAST(signs AS HUGEINT[])[3]) & CAST(low AS HUGEINT[])[3])
            + 2 * (CAST(0 AS INTEGER)
            + bit_count(xor(d.w0, CAST(signs AS HUGEINT[])[1]) & CAST(high AS HUGEINT[])[1])
            + bit_count(xor(d.w1, CAST(signs AS HUGEINT[])[2]) & CAST(high AS HUGEINT[])[2])
            + bit_count(xor(d.w2, CAST(signs AS HUGEINT[])[3]) & CAST(high AS HUGEINT[])[3])
            ), d.rid
        LIMIT greatest(pool, k)
    )
    SELECT * FROM (
        SELECT s.node_id,
               CASE WHEN isfinite(s.product) THEN greatest(-1, least(1, round(s.product / vector_length(query_vector), 9))) END AS score,
               s.text, s.doc_id, s.chunk_index, s.heading_path, s.page, s.collection, s.tags, s.rid
        FROM (
            -- The list of one, because TRY takes no subquery, which query_vector may be.
            SELECT *, list_transform([CAST(CAST(query_vector AS FLOAT[384]) AS DOUBLE[384])],
                lambda v: TRY(array_inner_product(CAST(embedding AS DOUBLE[384]), v)))[1] AS product
            FROM documents
            WHERE rid IN (FROM candidates)
        ) AS s
        ORDER BY score DESC NULLS LAST, s.doc_id, s.chunk_index
        LIMIT k
    )
    -- After the LIMIT, or DuckDB would compute the product of every chunk before it looks at the pool.
    WHERE score IS NOT NULL
    ORDER BY score DESC, doc_id, chunk_index;
