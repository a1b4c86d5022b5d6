-- What the values of text columns of a source look like: how many there are, how many are numbers, numbers with a
-- decimal comma or with commas between thousands, and dates or times, and the first one, by its row, that is none of
-- each; of the dates, the first that is not written as 2024-12-31. Columns and rows are put in.
WITH cells AS (
    UNPIVOT (SELECT rowid, $columns FROM source WHERE $rows) ON COLUMNS(* EXCLUDE (rowid)) INTO NAME name VALUE value
), trimmed AS (
    SELECT name, rowid AS place, trim(value) AS value, value AS cell FROM cells WHERE trim(value) <> ''
), forms AS (
    SELECT
        *,
        length(value) < 40 AS is_short,
        is_short AND TRY_CAST(value AS DOUBLE) IS NOT NULL AS is_number,
        is_short AND regexp_full_match(value, '[+-]?(\d{1,3}(\.\d{3})*|\d+)(,\d+)?') AS has_decimal_comma,
        is_short AND regexp_full_match(value, '[+-]?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?') AS has_thousands,
        is_short AND regexp_matches(value, '^\d{4}-') AND TRY_CAST(value AS TIMESTAMP) IS NOT NULL AS is_iso,
        regexp_extract(value, ' \d{1,2}:\d{2}(:\d{2})?$') AS clock,
        left(value, length(value) - length(clock)) AS day,
        NOT regexp_matches(day, '\d{4}') AS is_short_year,
        is_iso OR is_short AND try_strptime(day, ['%d.%m.%Y', '%d/%m/%Y', '%m/%d/%Y', '%Y/%m/%d']) IS NOT NULL AS is_date
    FROM trimmed
)
SELECT
    name,
    count(*) AS present,
    count(*) FILTER (is_number) AS numbers,
    count(*) FILTER (has_decimal_comma) AS decimal_commas,
    count(*) FILTER (has_decimal_comma AND contains(value, ',') AND NOT has_thousands) AS surely_decimal,
    count(*) FILTER (has_decimal_comma AND contains(value, '.')) AS points,
    count(*) FILTER (has_thousands) AS thousands,
    count(*) FILTER (has_thousands AND contains(value, ',')) AS commas,
    count(*) FILTER (is_date) AS dates,
    count(*) FILTER (is_iso) AS iso,
    arg_min(cell, place) FILTER (is_date AND NOT is_iso) AS no_iso,
    max(length(value)) FILTER (is_date) AS longest_date,
    count(*) FILTER (clock <> '') AS clocks,
    count(*) FILTER (length(clock) > 6) AS seconds,
    count(*) FILTER (is_iso AND regexp_matches(value, '\d:\d{2}(:\d{2}(\.\d+)?)? ?[+-]\d{2}(:?\d{2})?$')) AS zones,
    count(*) FILTER (is_number AND TRY_CAST(value AS BIGINT) IS NOT NULL AND regexp_full_match(value, '[+-]?\d+'))
        AS integers,
    map(['%d.%m.%Y', '%d/%m/%Y', '%m/%d/%Y', '%Y/%m/%d', '%d.%m.%y', '%d/%m/%y', '%m/%d/%y'], [
        count(try_strptime(day, '%d.%m.%Y')) FILTER (NOT is_short_year),
        count(try_strptime(day, '%d/%m/%Y')) FILTER (NOT is_short_year),
        count(try_strptime(day, '%m/%d/%Y')) FILTER (NOT is_short_year),
        count(try_strptime(day, '%Y/%m/%d')) FILTER (NOT is_short_year),
        count(try_strptime(day, '%d.%m.%y')), count(try_strptime(day, '%d/%m/%y')),
        count(try_strptime(day, '%m/%d/%y'))]) AS formats,
    count(*) FILTER (is_number AND regexp_matches(value, '^[+-]?0[0-9]')) AS zeros,
    count(DISTINCT cell) FILTER (NOT is_number) AS kinds_numbers,
    count(DISTINCT cell) FILTER (NOT has_decimal_comma) AS kinds_decimal_commas,
    count(DISTINCT cell) FILTER (NOT has_thousands) AS kinds_thousands,
    count(DISTINCT cell) FILTER (NOT is_date) AS kinds_dates,
    arg_min(value, place) FILTER (contains(value, ',')) AS first_comma,
    arg_min(cell, place) FILTER (NOT is_number) AS no_number,
    arg_min(cell, place) FILTER (NOT has_decimal_comma) AS no_decimal_comma,
    arg_min(cell, place) FILTER (NOT has_thousands) AS no_thousand,
    arg_min(cell, place) FILTER (NOT is_date) AS no_date
FROM forms
GROUP BY name
ORDER BY name;
