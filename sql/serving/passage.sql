-- The position of the chunk with the id $node_id in its document.
SELECT i_start, i_end, page FROM documents WHERE node_id = $node_id ORDER BY node_id;
