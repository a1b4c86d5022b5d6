-- The tags with how many documents and chunks have each, those with most chunks first.
SELECT name, count(DISTINCT doc_id) AS documents, count(*) AS chunks
FROM (SELECT DISTINCT doc_id, rid, unnest(tags) AS name FROM chunks) AS tagged
GROUP BY name
ORDER BY chunks DESC, name
LIMIT %(most)s;
