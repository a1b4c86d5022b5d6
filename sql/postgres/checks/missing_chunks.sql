-- A document with text has chunks.
SELECT doc_id
FROM documents AS d
WHERE NOT EXISTS (SELECT FROM chunks AS c WHERE c.doc_id = d.doc_id) AND substr(d.text, d.body_start + 1) ~ '\S'
ORDER BY doc_id;
