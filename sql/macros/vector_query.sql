-- The k chunks nearest to a vector by cosine, in two stages: the pool chunks whose sign codes differ least from the
-- query's (Hamming distance), then their exact cosines. A store, or a filter's rows, no larger than the pool is
-- searched exactly. The score is always the exact cosine.
CREATE OR REPLACE MACRO vector_query(query_vector, k := 10, pool := 500,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    WITH q AS MATERIALIZED (
        SELECT v, sqrt(array_inner_product(v, v)) AS norm FROM (SELECT CAST(query_vector AS FLOAT[384]) AS v)
    ),
    signs AS (
        SELECT rpad(digits, 64 * CAST(ceil(length(digits) / 64.0) AS INTEGER), '0') AS bits
        FROM (SELECT array_to_string(list_transform(CAST(v AS FLOAT[]), lambda x: CASE WHEN x >= 0 THEN '1' ELSE '0' END), '')
              AS digits FROM q)
    ),
    code AS MATERIALIZED (
        SELECT
            CAST('0b' || bits[1:64] AS UBIGINT) AS w0,
            CAST('0b' || bits[65:128] AS UBIGINT) AS w1,
            CAST('0b' || bits[129:192] AS UBIGINT) AS w2,
            CAST('0b' || bits[193:256] AS UBIGINT) AS w3,
            CAST('0b' || bits[257:320] AS UBIGINT) AS w4,
            CAST('0b' || bits[321:384] AS UBIGINT) AS w5,
            bits
        FROM signs
    ),
    candidates AS (
        SELECT d.rid
        FROM documents AS d, code AS c
        WHERE passes_filters(d.collection, d.tags, d.metadata_, collection, tags_any, tags_all, metadata)
        ORDER BY CAST(0 AS INTEGER)
            + bit_count(xor(d.w0, c.w0))
            + bit_count(xor(d.w1, c.w1))
            + bit_count(xor(d.w2, c.w2))
            + bit_count(xor(d.w3, c.w3))
            + bit_count(xor(d.w4, c.w4))
            + bit_count(xor(d.w5, c.w5))
            , d.rid
        LIMIT greatest(pool, k)
    )
    SELECT d.node_id, round(array_inner_product(d.embedding, q.v) / q.norm, 9) AS score, d.text, d.doc_id, d.chunk_index, d.heading_path,
           d.page, d.collection, d.tags, d.rid
    FROM documents AS d, q
    WHERE d.rid IN (FROM candidates)
    ORDER BY score DESC, d.doc_id, d.chunk_index
    LIMIT k;
