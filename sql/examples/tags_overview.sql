-- Which tags are there, and how many documents and chunks have each?
SELECT tag, count(DISTINCT doc_id) AS documents, count(*) AS chunks
FROM (SELECT doc_id, unnest(tags) AS tag FROM chunks)
GROUP BY tag
ORDER BY chunks DESC, tag
LIMIT 20;
