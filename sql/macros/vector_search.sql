-- The k chunks nearest to a vector by cosine, in two stages: the pool chunks whose sign words differ least from the
-- query's (Hamming distance), then their exact cosines. A store, or a filter's rows, no larger than the pool is
-- searched exactly. The score is always the exact cosine. code is sign_words(query_vector).
CREATE OR REPLACE MACRO vector_search(query_vector, code, k := 10, pool := 500,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    WITH candidates AS (
        SELECT d.rid
        FROM documents AS d
        WHERE passes_filters(d.collection, d.tags, d.metadata_, collection, tags_any, tags_all, metadata)
        ORDER BY CAST(0 AS INTEGER)
            + bit_count(xor(d.w0, CAST(code AS UBIGINT[])[1]))
            + bit_count(xor(d.w1, CAST(code AS UBIGINT[])[2]))
            + bit_count(xor(d.w2, CAST(code AS UBIGINT[])[3]))
            + bit_count(xor(d.w3, CAST(code AS UBIGINT[])[4]))
            + bit_count(xor(d.w4, CAST(code AS UBIGINT[])[5]))
            + bit_count(xor(d.w5, CAST(code AS UBIGINT[])[6]))
            , d.rid
        LIMIT greatest(pool, k)
    )
    SELECT d.node_id,
           round(array_inner_product(d.embedding, CAST(query_vector AS FLOAT[384]))
                 / sqrt(array_inner_product(CAST(query_vector AS FLOAT[384]), CAST(query_vector AS FLOAT[384]))), 9) AS score,
           d.text, d.doc_id, d.chunk_index, d.heading_path, d.page, d.collection, d.tags, d.rid
    FROM documents AS d
    WHERE d.rid IN (FROM candidates)
    ORDER BY score DESC, d.doc_id, d.chunk_index
    LIMIT k;
