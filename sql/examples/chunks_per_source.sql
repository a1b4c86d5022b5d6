-- How finely is each document split: its chunks, and their mean length in characters?
SELECT doc_id, count(*) AS chunks, round(avg(characters)) AS mean_characters, max(characters) AS longest
FROM chunks
GROUP BY doc_id
ORDER BY chunks DESC, doc_id
LIMIT 10;
