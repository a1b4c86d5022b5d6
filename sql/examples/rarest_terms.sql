-- Which long words occur in one chunk only, and in which one? Typing errors and special terms show here.
SELECT w.word, d.node_id
FROM fts_main_documents.dict AS t
JOIN fts_main_documents.words AS w ON w.term = t.term
JOIN fts_main_documents.postings AS p ON p.termid = t.termid
JOIN documents AS d ON d.rid = p.rid
WHERE t.df = 1 AND length(w.word) >= 8
ORDER BY w.word
LIMIT 20;
