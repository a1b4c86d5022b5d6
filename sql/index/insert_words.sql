-- The words that are not in the index yet, with their stems; they are counted when all chunks are added.
INSERT INTO fts_main_documents.words SELECT word, term, 0 FROM new_words ORDER BY word;
