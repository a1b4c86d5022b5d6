-- Which words are in the most chunks, and in what share of them? The stop words are left out.
SELECT term, words, df AS chunks, round(100 * share, 1) AS percent
FROM vocabulary
WHERE NOT is_stopword
ORDER BY chunks DESC, term
LIMIT 20;
