-- new_sources is in the order of doc_id: to sort it here would copy the texts once more.
INSERT INTO source_documents BY NAME
SELECT *, CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP) AS created_at FROM new_sources;
