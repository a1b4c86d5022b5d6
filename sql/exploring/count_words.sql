-- How many of the texts in clustered_texts(grp, text) hold each word, of a cluster, of the others, and of all. A word counts once a text.
CREATE OR REPLACE TEMP TABLE counted_terms AS
WITH words AS (
    SELECT grp, unnest(list_distinct(fts_main_documents.plain_words(text))) AS term FROM clustered_texts WHERE text IS NOT NULL
), counts AS (
    SELECT grp, term, CAST(count(*) AS DOUBLE) AS n FROM words GROUP BY grp, term
)
SELECT grp, term, n, sum(n) OVER of_term - n AS against, sum(n) OVER of_term AS background
FROM counts
WINDOW of_term AS (PARTITION BY term);
