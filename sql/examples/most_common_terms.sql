-- Which words are in the most chunks, and in what share of them? The stop words are left out.
SELECT d.term, list_sort(list(w.word)) AS words, d.df AS chunks, round(100 * d.df / s.num_docs, 1) AS percent
FROM fts_main_documents.dict AS d
JOIN fts_main_documents.words AS w ON w.term = d.term
CROSS JOIN fts_main_documents.stats AS s
GROUP BY d.term, d.df, s.num_docs
HAVING NOT list_has_any(list(w.word), (SELECT list(word) FROM fts_main_documents.stopwords))
ORDER BY chunks DESC, d.term
LIMIT 20;
