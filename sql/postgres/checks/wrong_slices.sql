-- A chunk with offsets is that slice of its document's text.
SELECT c.node_id
FROM chunks AS c JOIN documents AS d USING (doc_id)
WHERE c.i_start IS NOT NULL AND substr(d.text, c.i_start + 1, c.i_end - c.i_start) IS DISTINCT FROM c.content
ORDER BY c.doc_id, c.chunk_index;
