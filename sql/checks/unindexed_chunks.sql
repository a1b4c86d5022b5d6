-- The lexical index knows every chunk once, and no other.
SELECT coalesce(d.node_id, 'rid ' || i.rid) AS node_id
FROM documents AS d FULL JOIN fts_main_documents.docs AS i ON i.rid = d.rid
WHERE d.rid IS NULL OR i.rid IS NULL
UNION ALL
SELECT 'rid ' || rid FROM fts_main_documents.docs GROUP BY rid HAVING count(*) > 1
ORDER BY node_id;
