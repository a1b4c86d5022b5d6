-- A chunk is the slice [i_start:i_end] of its source's text.
SELECT d.node_id
FROM documents AS d JOIN source_documents AS s ON s.doc_id = d.doc_id
WHERE d.i_start IS NOT NULL AND substring(s.text, d.i_start + 1, d.i_end - d.i_start) <> d.text
ORDER BY d.node_id;
