-- The collections with how many documents and chunks are in each, those with most chunks first.
SELECT collection AS name, count(DISTINCT doc_id) AS documents, count(*) AS chunks
FROM chunks
GROUP BY name
ORDER BY chunks DESC, name
LIMIT %(most)s;
