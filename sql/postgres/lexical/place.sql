-- The row of a chunk, and whether it meets conditions.
SELECT rid, coalesce((/* conditions */ true), false) FROM chunks WHERE node_id = %(node_id)s;
