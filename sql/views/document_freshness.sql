-- How old each document is against the one changed last, and whether the file on disk is newer than what is stored.
CREATE OR REPLACE VIEW document_freshness AS
SELECT s.doc_id, s.collection, s.modified_at, s.created_at AS ingested_at,
       round(epoch(max(s.modified_at) OVER () - s.modified_at) / 86400, 1) AS age_days,
       coalesce(f.failed_at >= s.created_at, false) AS stale, f.reason
FROM source_documents AS s LEFT JOIN ingest_failures AS f ON f.doc_id = s.doc_id
ORDER BY s.modified_at DESC NULLS LAST, s.doc_id;
