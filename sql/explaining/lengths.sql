-- How many words a chunk and its headings have, their averages, and the number of chunks: what BM25 knows of lengths.
SELECT i.len, i.heading_len, s.avg_len, s.avg_heading_len, s.num_docs
FROM fts_main_documents.docs AS i, fts_main_documents.stats AS s
WHERE i.rid = $rid;
