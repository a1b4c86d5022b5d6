-- Empties the lexical index, to rebuild it.
DELETE FROM fts_main_documents.postings;

DELETE FROM fts_main_documents.docs;

DELETE FROM fts_main_documents.dict;

DELETE FROM fts_main_documents.words;
