-- The terms that a query looks for: each word's stem, from the words of the corpus or else, where the file's stemmer is
-- porter, by rule. Other stemmers cannot run in SQL: a word form that the corpus does not hold then stands for itself.
CREATE OR REPLACE MACRO query_terms(query_text) AS TABLE
    SELECT DISTINCT coalesce(w.term, CASE WHEN m.value = 'porter' THEN fts_main_documents.porter_stem(q.word) ELSE q.word END) AS term
    FROM query_words(query_text) AS q
    JOIN embedding_metadata AS m ON m.key = 'stemmer'
    LEFT JOIN fts_main_documents.words AS w ON w.word = q.word
    ORDER BY term;
