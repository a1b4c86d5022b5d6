-- The text of a time with an offset, such as 2025-04-25T00:00:00.5+02:00, as that of the one without it in UTC; no row for another
-- text, and where there is no such day: make_interval takes any. Seconds stay as they are written. Parts are taken by their places,
-- since regexp_match takes ten times as long, and each OFFSET 0 keeps Postgres from evaluating a part once for every use of it.
-- There is a year 0, as in DuckDB: to_char writes it as 0001 too, and no offset reaches a year beyond -1.
SELECT to_char(utc, CASE WHEN utc < '0001-01-01 BC' THEN '"-1"' WHEN utc < '0001-01-01' THEN '"0000"' ELSE 'YYYY' END
                    || '-MM-DD"T"HH24:MI') || left(rest, sign - 1)
FROM (SELECT given, substr(given, 17) AS rest, strpos(translate(substr(given, 17), '-', '+'), '+') AS sign
      FROM (SELECT /* text */ '' AS given OFFSET 0) AS texts
      WHERE given ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}([.][0-9]+)?)?[+-][0-9]{2}(:?[0-9]{2})?$' OFFSET 0) AS parts,
     LATERAL (SELECT timestamp '0001-01-01' + make_interval(years => left(given, 4)::int - 1, months => substr(given, 6, 2)::int - 1)
                     + make_interval(days => substr(given, 9, 2)::int - 1, hours => substr(given, 12, 2)::int,
                                     mins => substr(given, 15, 2)::int) AS moment OFFSET 0) AS counted,
     LATERAL (SELECT moment - (substr(rest, sign, 1) || '1')::int
                     * make_interval(hours => substr(rest, sign + 1, 2)::int, mins => ('0' || ltrim(substr(rest, sign + 3), ':'))::int)
                     AS utc OFFSET 0) AS shifted
WHERE to_char(moment, 'MM-DD HH24:MI') = translate(substr(given, 6, 11), 'T', ' ')
