-- The terms that a query looks for, with their termid and document frequency (NULL and 0 where no chunk holds one). A
-- word's term is its stem, from the words of the corpus or else, where the file's stemmer is porter, by rule. Other
-- stemmers cannot run in SQL: a word form that is not in the corpus is then its own term.
CREATE OR REPLACE MACRO query_terms(query_text) AS TABLE
    SELECT q.term, d.termid, coalesce(d.df, 0) AS df
    FROM (
        SELECT DISTINCT coalesce(w.term, CASE WHEN m.value = 'porter' THEN fts_main_documents.porter_stem(q.word) ELSE q.word END)
            AS term
        FROM query_words(query_text) AS q
        JOIN embedding_metadata AS m ON m.key = 'stemmer'
        LEFT JOIN fts_main_documents.words AS w ON w.word = q.word
    ) AS q
    LEFT JOIN fts_main_documents.dict AS d ON d.term = q.term
    ORDER BY q.term;
