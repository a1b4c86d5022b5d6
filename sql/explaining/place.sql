-- The row of a chunk, and whether it passes the filters.
SELECT d.rid, passes(d.rid, d.collection, d.tags, $passing, $collection, $tags_any, $tags_all)
FROM documents AS d
WHERE d.node_id = $node_id;
