INSERT INTO source_documents BY NAME
SELECT *, CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP) AS created_at FROM new_sources ORDER BY doc_id;
