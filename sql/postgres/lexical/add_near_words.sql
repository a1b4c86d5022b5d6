-- In DuckDB: the words among which index/nearest_words looks.
INSERT INTO fts_main_documents.words SELECT word, word, df FROM near_words;
