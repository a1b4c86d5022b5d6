-- How many documents and chunks there are.
SELECT (SELECT count(*) FROM source_documents) AS documents, (SELECT count(*) FROM documents) AS chunks;
