-- Which terms set the chunks of some documents apart from all others?
-- By weighted log-odds with an informative Dirichlet prior of 500 words (Monroe, Colaresi, Quinn 2008, "Fightin' Words", Political Analysis 16(4)); a z of 1.96 or more is seldom chance.
WITH counts AS (
    SELECT p.termid, CAST(coalesce(sum(p.tf) FILTER (starts_with(d.doc_id, 'formats/')), 0) AS DOUBLE) AS n, CAST(sum(p.tf) AS DOUBLE) AS background
    FROM fts_main_documents.postings AS p JOIN documents AS d ON d.rid = p.rid
    GROUP BY p.termid
), smoothed AS (
    SELECT termid, n, background - n AS against, n + 500 * background / sum(background) OVER () AS y,
           background - n + 500 * background / sum(background) OVER () AS z, sum(n) OVER () + 500 AS y_all,
           sum(background - n) OVER () + 500 AS z_all
    FROM counts
    WHERE background > 0
), scored AS (
    SELECT t.term, s.n, s.against, round((ln(s.y / (s.y_all - s.y)) - ln(s.z / (s.z_all - s.z))) / sqrt(1 / s.y + 1 / s.z), 6) AS z
    FROM smoothed AS s JOIN fts_main_documents.dict AS t ON t.termid = s.termid
)
SELECT term, CAST(n AS BIGINT) AS count, CAST(against AS BIGINT) AS count_against, z
FROM scored
WHERE term NOT IN (FROM fts_main_documents.stopwords)
ORDER BY z DESC, term
LIMIT 20;
