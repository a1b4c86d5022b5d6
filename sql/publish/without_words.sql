-- Empties the lexical index.
DELETE FROM fts_main_documents.postings;
DELETE FROM fts_main_documents.words;
DELETE FROM fts_main_documents.dict;
DELETE FROM fts_main_documents.docs;
