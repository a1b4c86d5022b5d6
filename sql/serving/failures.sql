-- The documents after one that could not be used when they were last read, in the order of their ids.
SELECT doc_id, status, reason, failed_at FROM ingest_failures WHERE doc_id > $after ORDER BY doc_id LIMIT $most;
