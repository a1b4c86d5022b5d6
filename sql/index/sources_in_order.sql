-- Every document of the attached database old in the order of its chunks, with the policy by which it was chunked.
SELECT s.doc_id, s.chunk_policy
FROM old.main.source_documents AS s
LEFT JOIN (SELECT doc_id, min(rid) AS first FROM old.main.documents GROUP BY doc_id) AS c ON c.doc_id = s.doc_id
ORDER BY c.first NULLS LAST, s.doc_id;
