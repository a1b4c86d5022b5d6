-- What the runs did all together, by collection and kind.
CREATE OR REPLACE VIEW ingest_summary AS
SELECT collection, kind, count(*) AS runs, max(started_at) AS last_started_at,
       round(sum(epoch_ms(finished_at - started_at)) / 1000.0, 3) AS total_seconds, CAST(sum(documents) AS BIGINT) AS documents,
       CAST(sum(removed) AS BIGINT) AS removed, CAST(sum(chunks) AS BIGINT) AS chunks, CAST(sum(embedded) AS BIGINT) AS embedded,
       CAST(sum(reused) AS BIGINT) AS reused, CAST(sum(failed) AS BIGINT) AS failed,
       round(sum(embedded) / nullif(sum(CAST(json_extract_string(seconds, '$.embed') AS DOUBLE)), 0), 1) AS texts_per_second
FROM ingest_log
GROUP BY collection, kind
ORDER BY collection, kind;
