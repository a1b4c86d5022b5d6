-- The staged words that the index has not met yet; their stems are made outside of SQL.
SELECT DISTINCT word FROM staged_tokens ANTI JOIN fts_main_documents.words USING (word) ORDER BY word;
