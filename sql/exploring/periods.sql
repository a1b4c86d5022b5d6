-- How many of dated_rows(moment, kind) there are of each of dated_kinds(kind) in each period, from the first to the last, and of all
-- kinds: also where there are none.
WITH dated AS (
    SELECT date_trunc($period, CAST(moment AS TIMESTAMP)) AS period, kind FROM dated_rows WHERE isfinite(CAST(moment AS TIMESTAMP))
), spans AS (
    SELECT unnest(generate_series(CAST(min(period) AS TIMESTAMP), CAST(max(period) AS TIMESTAMP), CAST($step AS INTERVAL))) AS period FROM dated
), totals AS (
    SELECT period, count(*) AS total FROM dated GROUP BY period
), counts AS (
    SELECT period, kind, count(*) AS count FROM dated GROUP BY period, kind
)
SELECT CAST(s.period AS DATE) AS period, k.kind, coalesce(c.count, 0) AS count, coalesce(t.total, 0) AS total,
       round(coalesce(c.count, 0) / t.total, 9) AS share
FROM spans AS s CROSS JOIN dated_kinds AS k LEFT JOIN totals AS t ON t.period = s.period
     LEFT JOIN counts AS c ON c.period = s.period AND c.kind = k.kind
ORDER BY s.period, k.kind;
