CREATE OR REPLACE MACRO fts_main_documents.porter_stem(word) AS word;
