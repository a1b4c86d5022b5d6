-- Documents as they lie.
SELECT * REPLACE (CAST(metadata_ AS VARCHAR) AS metadata_, CAST(chunk_policy AS VARCHAR) AS chunk_policy)
FROM source_documents
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id;
