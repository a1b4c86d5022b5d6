-- How many postings there are, and the greatest numbers in them.
SELECT count(*), coalesce(max(tf), 0), coalesce(max(heading_tf), 0) FROM fts_main_documents.postings;
