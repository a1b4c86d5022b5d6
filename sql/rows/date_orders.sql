-- Of each of the columns the first value, as the file has it, that another order of day, month and year reads as
-- another date, where that order reads all values. Columns and the source, with the places of its
-- rows, are put in.
WITH cells AS (
    UNPIVOT (SELECT row_place, $columns FROM $source) ON COLUMNS(* EXCLUDE (row_place)) INTO NAME name VALUE value
), read AS (
    SELECT name, row_place AS place, value, strftime(value, $format) AS cell, try_strptime(cell, $other) AS other FROM cells
)
SELECT name, arg_min(cell, place) FILTER (other <> value), arg_min(CAST(value AS VARCHAR), place) FILTER (other <> value)
FROM read
GROUP BY name
HAVING count(*) = count(other) AND bool_or(other <> value)
ORDER BY name;
