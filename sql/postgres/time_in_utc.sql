-- The text of a time with an offset, such as 2025-04-25T00:00:00.5+02:00, as that of the one without it in UTC; no row for another
-- text, and where there is no such day: make_interval takes any. Seconds stay as they are written.
SELECT to_char(moment - (m[7] || '1')::int * make_interval(hours => m[8]::int, mins => ('0' || coalesce(m[9], ''))::int), 'YYYY-MM-DD"T"HH24:MI')
       || coalesce(m[6], '')
FROM (SELECT regexp_match(/* text */ '', '^([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(:[0-9]{2}(?:[.][0-9]+)?)?([+-])([0-9]{2}):?([0-9]{2})?$') AS m) AS matched,
     LATERAL (SELECT timestamp '0001-01-01' + make_interval(years => m[1]::int - 1, months => m[2]::int - 1)
                     + make_interval(days => m[3]::int - 1, hours => m[4]::int, mins => m[5]::int) AS moment) AS counted
WHERE to_char(moment, 'YYYY-MM-DD HH24:MI') = concat(m[1], '-', m[2], '-', m[3], ' ', m[4], ':', m[5])
