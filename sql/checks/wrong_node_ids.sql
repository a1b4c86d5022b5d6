-- A chunk's node_id is its document and its place, save in files of sqlrooms-rag and where nodes with ids of their own were added; it has a place in its document, a node_id and a rid that no other chunk has.
SELECT any_value(node_id) AS node_id FROM documents GROUP BY doc_id, chunk_index HAVING count(*) > 1
UNION ALL
SELECT any_value(node_id) FROM documents GROUP BY rid HAVING count(*) > 1
UNION ALL
SELECT node_id FROM documents
WHERE chunk_index < 0
   OR node_id <> doc_id || '#' || chunk_index AND NOT EXISTS (SELECT 1 FROM embedding_metadata WHERE key IN ('upgraded_from', 'own_node_ids'))
ORDER BY node_id;
