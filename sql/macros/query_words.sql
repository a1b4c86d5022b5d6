-- The distinct words of a query; stop words, in whatever case the list has them, only where there is nothing else.
CREATE OR REPLACE MACRO query_words(query_text) AS TABLE
    SELECT unnest(list_sort(CASE WHEN length(q.kept) > 0 THEN q.kept ELSE q.words END)) AS word
    FROM (
        SELECT w.words, list_filter(w.words, lambda candidate: NOT list_contains(w.stops, candidate)) AS kept
        FROM (
            SELECT list_distinct(fts_main_documents.tokenize(query_text)) AS words,
                   (SELECT coalesce(list(fts_main_documents.fold(fts_main_documents.composed(s.word))), []) FROM fts_main_documents.stopwords AS s) AS stops
        ) AS w
    ) AS q;
