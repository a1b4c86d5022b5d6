-- The sums for the averages of BM25, as numbers that add up over files.
SELECT count(*) AS chunks, coalesce(sum(len), 0) AS length, coalesce(sum(heading_len), 0) AS heading_length FROM fts_main_documents.docs;
