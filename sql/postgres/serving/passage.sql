-- The position of a chunk in its document.
SELECT i_start, i_end, page FROM chunks WHERE node_id = %(node_id)s ORDER BY node_id;
