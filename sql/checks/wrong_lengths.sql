-- A chunk is as long as its postings say.
SELECT coalesce(d.node_id, 'rid ' || i.rid) AS node_id
FROM fts_main_documents.docs AS i
LEFT JOIN (SELECT rid, sum(tf) AS len, sum(heading_tf) AS heading_len FROM fts_main_documents.postings GROUP BY rid) AS p ON p.rid = i.rid
LEFT JOIN documents AS d ON d.rid = i.rid
WHERE i.len <> coalesce(p.len, 0) OR i.heading_len <> coalesce(p.heading_len, 0)
ORDER BY node_id;
