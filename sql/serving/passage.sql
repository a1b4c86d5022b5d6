-- The position of the chunk with the id $node_id in its document, and what the text of that is.
SELECT d.i_start, d.i_end, d.page, s.mime, s.body_start, s.checksum
FROM documents AS d LEFT JOIN source_documents AS s ON s.doc_id = d.doc_id
WHERE d.node_id = $node_id
ORDER BY d.node_id;
