-- In DuckDB: the stop words of a new store.
SELECT word FROM fts_main_documents.stopwords ORDER BY word;
