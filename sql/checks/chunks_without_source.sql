-- Every chunk belongs to a source document of the same collection and checksum.
SELECT d.node_id
FROM documents AS d LEFT JOIN source_documents AS s ON s.doc_id = d.doc_id
WHERE s.doc_id IS NULL OR s.collection <> d.collection OR s.checksum <> d.checksum
ORDER BY d.node_id;
