-- A list of truth values as words of 128 bits: the first value is the highest bit of the first word, missing ones are 0.
-- A HUGEINT has a sign, so a word whose highest bit is set is negative, as in two's complement;
-- 2^127 is taken off in two halves, because it is no HUGEINT itself. DuckDB 1.3 makes NULL of an empty list's text.
CREATE OR REPLACE MACRO pack_words(flags) AS
    list_transform(
        list_transform([flags], lambda all_flags: list_transform(
            range(2 * CAST(ceil(length(all_flags) / 128.0) AS BIGINT)),
            lambda i: CAST('0b' || rpad(coalesce(array_to_string(list_transform(
                all_flags[64 * i + 1:64 * i + 64], lambda flag: CASE WHEN flag THEN '1' ELSE '0' END), ''), ''), 64, '0') AS UBIGINT)))[1:],
        lambda halves: list_transform(
            range(length(halves) // 2),
            lambda i: CAST(halves[2 * i + 1] & 9223372036854775807 AS HUGEINT) * 18446744073709551616 + halves[2 * i + 2]
                - CAST(halves[2 * i + 1] >> 63 AS HUGEINT) * 85070591730234615865843651857942052864
                - CAST(halves[2 * i + 1] >> 63 AS HUGEINT) * 85070591730234615865843651857942052864))[1];
