-- The metadata fields with how many documents and chunks have each, those with most chunks first; $most of them.
SELECT name, count(DISTINCT doc_id) AS documents, count(*) AS chunks
FROM (SELECT doc_id, unnest(json_keys(public_metadata(metadata_))) AS name FROM documents)
GROUP BY name
ORDER BY chunks DESC, name
LIMIT $most;
