-- No chunk is blank.
SELECT node_id FROM chunks WHERE content !~ '\S' ORDER BY doc_id, chunk_index;
