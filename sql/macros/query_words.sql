-- The distinct words of a query; stop words only where there is nothing else.
CREATE OR REPLACE MACRO query_words(query_text) AS TABLE
    SELECT q.word
    FROM (SELECT DISTINCT unnest(fts_main_documents.tokenize(query_text)) AS word) AS q
    LEFT JOIN fts_main_documents.stopwords AS s ON s.word = q.word
    QUALIFY s.word IS NULL OR count(*) FILTER (s.word IS NULL) OVER () = 0
    ORDER BY q.word;
