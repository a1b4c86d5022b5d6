-- The signs of a vector as words of 64 bits: a dimension of zero or more is a 1, the first one is the highest bit.
CREATE OR REPLACE MACRO sign_words(vector) AS
    list_transform(
        range(CAST(ceil(length(CAST(vector AS FLOAT[])) / 64.0) AS BIGINT)),
        lambda i: CAST('0b' || rpad(array_to_string(list_transform(
            CAST(vector AS FLOAT[])[64 * i + 1:64 * i + 64], lambda x: CASE WHEN x >= 0 THEN '1' ELSE '0' END), ''), 64, '0') AS UBIGINT));
