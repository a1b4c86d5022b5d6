-- The runs that wrote to the file, the last one first.
CREATE OR REPLACE VIEW ingest_runs AS
SELECT run_id, kind, started_at, round(epoch_ms(finished_at - started_at) / 1000.0, 3) AS total_seconds, collection,
       files, documents, removed, chunks, embedded, embedding_calls, reused, failed,
       round(embedded / nullif(CAST(json_extract_string(seconds, '$.embed') AS DOUBLE), 0), 1) AS texts_per_second
FROM ingest_log
ORDER BY started_at DESC, run_id;
