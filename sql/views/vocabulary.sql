-- The terms of the lexical index by the number of chunks that hold them.
CREATE OR REPLACE VIEW vocabulary AS
WITH counts AS (
    SELECT termid, CAST(sum(tf) AS BIGINT) AS total_tf, CAST(sum(heading_tf) AS BIGINT) AS total_heading_tf
    FROM fts_main_documents.postings
    GROUP BY termid
),
spellings AS (
    SELECT w.term, list(w.word ORDER BY w.df DESC, w.word) AS words, bool_or(s.word IS NOT NULL) AS is_stopword
    FROM fts_main_documents.words AS w
    LEFT JOIN (SELECT DISTINCT fts_main_documents.fold(fts_main_documents.composed(word)) AS word FROM fts_main_documents.stopwords) AS s ON s.word = w.word
    GROUP BY w.term
)
SELECT d.term, w.words, d.df, round(d.df / s.num_docs, 6) AS share, c.total_tf, c.total_heading_tf, w.is_stopword
FROM fts_main_documents.dict AS d
JOIN counts AS c ON c.termid = d.termid
JOIN spellings AS w ON w.term = d.term
CROSS JOIN fts_main_documents.stats AS s
ORDER BY d.df DESC, d.term;
