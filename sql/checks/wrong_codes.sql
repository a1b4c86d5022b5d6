-- The sign words are those of the vector.
WITH signs AS (
    SELECT *, rpad(digits, 64 * CAST(ceil(length(digits) / 64.0) AS INTEGER), '0') AS bits
    FROM (SELECT *, array_to_string(list_transform(CAST(embedding AS FLOAT[]), lambda x: CASE WHEN x >= 0 THEN '1' ELSE '0' END), '')
          AS digits FROM documents)
)
SELECT node_id FROM signs
WHERE false
    OR w0 <> CAST('0b' || bits[1:64] AS UBIGINT)
    OR w1 <> CAST('0b' || bits[65:128] AS UBIGINT)
    OR w2 <> CAST('0b' || bits[129:192] AS UBIGINT)
    OR w3 <> CAST('0b' || bits[193:256] AS UBIGINT)
    OR w4 <> CAST('0b' || bits[257:320] AS UBIGINT)
    OR w5 <> CAST('0b' || bits[321:384] AS UBIGINT)
ORDER BY node_id;
