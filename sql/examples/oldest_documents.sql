-- Which documents were not changed for the longest time, and which of them are out of date?
SELECT doc_id, modified_at, ingested_at, age_days, stale, reason
FROM document_freshness
ORDER BY age_days DESC NULLS LAST, doc_id
LIMIT 10;
