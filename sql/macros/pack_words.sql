-- A list of truth values as words of 64 bits: the first value is the highest bit of the first word, missing ones are 0.
CREATE OR REPLACE MACRO pack_words(flags) AS
    list_transform([flags], lambda all_flags: list_transform(
        range(CAST(ceil(length(all_flags) / 64.0) AS BIGINT)),
        lambda i: CAST('0b' || rpad(array_to_string(list_transform(
            all_flags[64 * i + 1:64 * i + 64], lambda flag: CASE WHEN flag THEN '1' ELSE '0' END), ''), 64, '0') AS UBIGINT)))[1];
