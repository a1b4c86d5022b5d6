-- Which files could not be used, and why?
SELECT doc_id, status, reason, failed_at
FROM ingest_failures
ORDER BY failed_at DESC, doc_id
LIMIT 20;
