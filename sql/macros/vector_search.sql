-- The k chunks nearest to a vector by cosine, in two stages. First the pool chunks whose signs differ least from the
-- query's, a difference counting 0 to 3 by how far the query is from zero in that dimension; then their exact cosines.
-- A store, or a filter's rows, no larger than the pool is searched exactly. The score is always the exact cosine. A damaged
-- vector (not finite, or with a NULL in it) is passed over.
-- signs is sign_words(query_vector); low and high hold the two bits of the weights, packed in the same way.
CREATE OR REPLACE MACRO vector_search(query_vector, signs, low, high, k := 10, pool := 750,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    WITH searched AS MATERIALIZED (SELECT CAST(query_vector AS FLOAT[384]) AS v),
    candidates AS (
        SELECT d.rid
        FROM documents AS d
        WHERE passes_filters(d.collection, d.tags, d.metadata_, collection, tags_any, tags_all, metadata)
        ORDER BY CAST(0 AS INTEGER)
            + bit_count(xor(d.w0, CAST(signs AS UBIGINT[])[1]) & CAST(low AS UBIGINT[])[1])
            + bit_count(xor(d.w1, CAST(signs AS UBIGINT[])[2]) & CAST(low AS UBIGINT[])[2])
            + bit_count(xor(d.w2, CAST(signs AS UBIGINT[])[3]) & CAST(low AS UBIGINT[])[3])
            + bit_count(xor(d.w3, CAST(signs AS UBIGINT[])[4]) & CAST(low AS UBIGINT[])[4])
            + bit_count(xor(d.w4, CAST(signs AS UBIGINT[])[5]) & CAST(low AS UBIGINT[])[5])
            + bit_count(xor(d.w5, CAST(signs AS UBIGINT[])[6]) & CAST(low AS UBIGINT[])[6])
            + 2 * (CAST(0 AS INTEGER)
            + bit_count(xor(d.w0, CAST(signs AS UBIGINT[])[1]) & CAST(high AS UBIGINT[])[1])
            + bit_count(xor(d.w1, CAST(signs AS UBIGINT[])[2]) & CAST(high AS UBIGINT[])[2])
            + bit_count(xor(d.w2, CAST(signs AS UBIGINT[])[3]) & CAST(high AS UBIGINT[])[3])
            + bit_count(xor(d.w3, CAST(signs AS UBIGINT[])[4]) & CAST(high AS UBIGINT[])[4])
            + bit_count(xor(d.w4, CAST(signs AS UBIGINT[])[5]) & CAST(high AS UBIGINT[])[5])
            + bit_count(xor(d.w5, CAST(signs AS UBIGINT[])[6]) & CAST(high AS UBIGINT[])[6])
            ), d.rid
        LIMIT greatest(pool, k)
    )
    SELECT d.node_id, round(TRY(array_inner_product(d.embedding, searched.v)) / sqrt(array_inner_product(searched.v, searched.v)), 9) AS score,
           d.text, d.doc_id, d.chunk_index, d.heading_path, d.page, d.collection, d.tags, d.rid
    FROM documents AS d, searched
    WHERE d.rid IN (FROM candidates) AND isfinite(TRY(array_inner_product(d.embedding, searched.v)))
    ORDER BY score DESC, d.doc_id, d.chunk_index
    LIMIT k;
