-- A chunk is of the collection of its document.
SELECT c.node_id FROM chunks AS c JOIN documents AS d USING (doc_id) WHERE c.collection <> d.collection ORDER BY c.doc_id, c.chunk_index;
