-- The words of the file that are nearest to $word by edits, at most $most of them, and the most frequent ones first; they begin or end
-- as it does. DuckDB counts the edits in bytes. The similarity is twenty times as quick, and leaves few words to count.
WITH similar_words AS MATERIALIZED (
    SELECT word, df
    FROM fts_main_documents.words
    WHERE length(word) BETWEEN length($word) - $most AND length($word) + $most
      AND (starts_with(word, left($word, 1)) OR suffix(word, right($word, 2)))
      AND NOT contains(word, '_')
      AND jaro_winkler_similarity(word, $word) > 0.85
),
counted AS MATERIALIZED (SELECT damerau_levenshtein(word, $word) AS edits, df, word FROM similar_words)
SELECT edits, df, word
FROM counted
WHERE edits <= $most * strlen($word) // length($word)
ORDER BY edits, df DESC, word
LIMIT 3;
