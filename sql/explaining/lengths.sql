-- How many words a chunk and its headings have, their averages, and the number of chunks: the lengths that BM25 uses.
SELECT coalesce(i.len, 0), coalesce(i.heading_len, 0), s.avg_len, s.avg_heading_len, s.num_docs
FROM fts_main_documents.stats AS s LEFT JOIN fts_main_documents.docs AS i ON i.rid = $rid;
