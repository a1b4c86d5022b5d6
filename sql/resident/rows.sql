-- Every chunk in the order of its number: its names, its place among all, what decides whether it is in a sample, its lengths.
SELECT d.rid, d.node_id, d.doc_id, d.chunk_index,
       CAST(row_number() OVER (ORDER BY d.doc_id, d.chunk_index, d.rid) AS INTEGER) AS place,
       hash(d.doc_id, d.chunk_index) AS hash, l.len, l.heading_len
FROM documents AS d LEFT JOIN fts_main_documents.docs AS l ON l.rid = d.rid
ORDER BY d.rid;
