-- A term's document frequency is the number of its postings.
SELECT d.term
FROM fts_main_documents.dict AS d
LEFT JOIN (SELECT termid, count(*) AS n FROM fts_main_documents.postings GROUP BY termid) AS p ON p.termid = d.termid
WHERE d.df <> coalesce(p.n, 0)
UNION ALL
SELECT term FROM fts_main_documents.dict GROUP BY term HAVING count(*) > 1
ORDER BY term;
