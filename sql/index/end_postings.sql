-- The number of chunks that hold each term.
UPDATE fts_main_documents.dict AS d SET df = d.df + n.df
FROM (SELECT termid, count(*) AS df FROM staged_postings GROUP BY termid) AS n
WHERE n.termid = d.termid;

DROP TABLE staged_postings;
