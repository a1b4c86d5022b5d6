-- The terms that a query looks for, with their termid and document frequency (NULL and 0 where no chunk holds one). A
-- word's term is that of the words of the corpus, or else by rule, see term_of.
CREATE OR REPLACE MACRO query_terms(query_text) AS TABLE
    SELECT q.term, d.termid, coalesce(d.df, 0) AS df
    FROM (
        SELECT DISTINCT coalesce(w.term, fts_main_documents.term_of(q.word, m.value)) AS term
        FROM query_words(query_text) AS q
        JOIN embedding_metadata AS m ON m.key = 'stemmer'
        LEFT JOIN fts_main_documents.words AS w ON w.word = q.word
    ) AS q
    LEFT JOIN fts_main_documents.dict AS d ON d.term = q.term
    ORDER BY q.term;
