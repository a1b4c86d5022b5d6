-- How long each stage of each run took, the last run first, the longest stage first.
CREATE OR REPLACE VIEW ingest_stages AS
WITH stages AS (
    SELECT run_id, kind, started_at, stage, CAST(json_extract_string(seconds, '$.' || stage) AS DOUBLE) AS seconds
    FROM (SELECT run_id, kind, started_at, seconds, unnest(json_keys(seconds)) AS stage FROM ingest_log)
)
SELECT run_id, kind, stage, seconds, round(seconds / nullif(sum(seconds) OVER (PARTITION BY run_id), 0), 3) AS share
FROM stages
ORDER BY started_at DESC, run_id, seconds DESC, stage;
