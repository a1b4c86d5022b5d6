-- Every posting, as it is stored: nearly in the order of terms and chunks.
SELECT termid, rid, tf, heading_tf FROM fts_main_documents.postings;
