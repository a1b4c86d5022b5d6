-- The first and the last date in dated_rows(moment, kind), how many periods are between them, and whether Python has all of them.
WITH dated AS (
    SELECT CAST(moment AS TIMESTAMP) AS moment FROM dated_rows WHERE isfinite(CAST(moment AS TIMESTAMP))
)
SELECT CAST(CAST(min(moment) AS DATE) AS VARCHAR), CAST(CAST(max(moment) AS DATE) AS VARCHAR),
       date_diff($period, min(moment), max(moment)),
       date_trunc($period, min(moment)) >= TIMESTAMP '0001-01-01' AND max(moment) < TIMESTAMP '10000-01-01'
FROM dated;
