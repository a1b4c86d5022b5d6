-- Which chunks of different documents are nearly the same?
SELECT node_id, other_node_id, cosine, same_text
FROM near_duplicates
WHERE doc_id <> other_doc_id
ORDER BY cosine DESC, node_id, other_node_id
LIMIT 10;
