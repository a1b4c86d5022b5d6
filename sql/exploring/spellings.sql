-- How $words, which are folded as the index has them, are most often spelled in labelled_texts(text), in lower case: "öffnen", not "offnen".
WITH forms AS (
    SELECT unnest(regexp_extract_all(fts_main_documents.composed(lower(text)), '[\p{L}\p{M}\p{N}_]+')) AS form
    FROM labelled_texts WHERE text IS NOT NULL
), counts AS (
    SELECT form, count(*) AS n FROM forms GROUP BY form
)
SELECT fts_main_documents.fold(form) AS word, arg_max(form, (n, form)) AS spelled
FROM counts
WHERE list_contains($words, fts_main_documents.fold(form))
GROUP BY word
ORDER BY word;
