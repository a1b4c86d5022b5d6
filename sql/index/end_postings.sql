-- The number of chunks that hold each term.
UPDATE fts_main_documents.dict AS d SET df = d.df + n.df
FROM (SELECT termid, count(*) AS df FROM staged_postings GROUP BY termid) AS n
WHERE n.termid = d.termid;

-- And each word, in one step: an update for each part would write most of the words again and again.
UPDATE fts_main_documents.words AS w SET df = w.df + n.df
FROM (SELECT word, sum(df) AS df FROM staged_words GROUP BY word) AS n
WHERE n.word = w.word;

DROP TABLE staged_words;
DROP TABLE staged_postings;
