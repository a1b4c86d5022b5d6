-- Every document with the number of its chunks.
SELECT s.doc_id, count(d.node_id) AS chunks
FROM source_documents AS s LEFT JOIN documents AS d ON d.doc_id = s.doc_id
GROUP BY s.doc_id
ORDER BY s.doc_id;
