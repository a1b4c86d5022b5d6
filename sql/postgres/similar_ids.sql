-- Up to three ids that begin like one that does not exist.
SELECT node_id FROM chunks WHERE starts_with(lower(node_id), lower(%(beginning)s)) ORDER BY doc_id, chunk_index LIMIT 3;
