-- What BM25 needs to know of the whole file.
SELECT num_docs, avg_len, avg_heading_len FROM fts_main_documents.stats;
