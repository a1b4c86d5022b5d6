-- The staged words that are not in the index yet; their stems are computed outside of SQL.
SELECT DISTINCT word FROM staged_tokens ANTI JOIN fts_main_documents.words USING (word) ORDER BY word;
