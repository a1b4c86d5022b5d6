-- The rows of new chunks. A word of a sign code comes in two halves of 64 bits, the upper one signed; twice 2^63, because
-- DuckDB 1.5 treats the least HUGEINT as an overflow in a product.
INSERT INTO documents BY NAME
SELECT * EXCLUDE (
        rid
        , w0_upper, w0_lower
        , w1_upper, w1_lower
        , w2_upper, w2_lower
    ),
    CAST(w0_upper AS HUGEINT) * 9223372036854775808 + CAST(w0_upper AS HUGEINT) * 9223372036854775808 + w0_lower AS w0,
    CAST(w1_upper AS HUGEINT) * 9223372036854775808 + CAST(w1_upper AS HUGEINT) * 9223372036854775808 + w1_lower AS w1,
    CAST(w2_upper AS HUGEINT) * 9223372036854775808 + CAST(w2_upper AS HUGEINT) * 9223372036854775808 + w2_lower AS w2,
    rid
FROM new_chunks
ORDER BY rid;
