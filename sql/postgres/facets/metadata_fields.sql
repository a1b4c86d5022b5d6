-- The metadata fields with how many documents and chunks have each, those with most chunks first.
SELECT name, count(DISTINCT doc_id) AS documents, count(*) AS chunks
FROM (SELECT doc_id, jsonb_object_keys(metadata) COLLATE "C" AS name FROM chunks) AS fields
GROUP BY name
ORDER BY chunks DESC, name
LIMIT %(most)s;
