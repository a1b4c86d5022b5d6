-- The number of each of some chunks.
SELECT node_id, rid FROM chunks WHERE node_id = ANY(%(node_ids)s::text[]);
