-- The position of a chunk in its document, and what the text of that is.
SELECT c.i_start, c.i_end, c.page, d.mime, d.body_start, d.checksum
FROM chunks AS c JOIN documents AS d ON d.doc_id = c.doc_id
WHERE c.node_id = %(node_id)s
ORDER BY c.node_id;
