-- Removes points from the map whose chunks or documents are gone.
DELETE FROM corpus_map
WHERE CASE WHEN node_id IS NULL THEN doc_id NOT IN (SELECT doc_id FROM documents)
           ELSE node_id NOT IN (SELECT node_id FROM documents) END;
