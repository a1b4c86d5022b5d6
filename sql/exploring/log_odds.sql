-- How much each term of counted_terms(grp, term, n, against, background) is one of its group: the log-odds ratio of the group and what
-- it is compared with, smoothed by a Dirichlet prior that has the shares of the background and weighs $prior words, and its
-- z-score (Monroe, Colaresi, Quinn 2008, "Fightin' Words", Political Analysis 16(4), equations 16 and 20 to 23). Stop words count, but
-- are not shown.
WITH terms AS (
    SELECT term, any_value(background) AS background, any_value(n + against) AS compared FROM counted_terms GROUP BY term
), everything AS (
    SELECT sum(background) AS background, sum(compared) AS compared FROM terms
), sizes AS (
    SELECT grp, sum(n) AS n FROM counted_terms GROUP BY grp
), smoothed AS (
    SELECT t.grp, t.term, t.n, t.against, t.n + $prior * t.background / e.background AS y, t.against + $prior * t.background / e.background AS z,
           s.n + $prior AS y_all, e.compared - s.n + $prior AS z_all
    FROM counted_terms AS t JOIN sizes AS s ON s.grp = t.grp CROSS JOIN everything AS e
    WHERE t.background > 0
), scored AS (
    SELECT *, ln(y / (y_all - y)) - ln(z / (z_all - z)) AS log_odds FROM smoothed WHERE y_all > y AND z_all > z
)
SELECT grp, term, round(log_odds / sqrt(1 / y + 1 / z), 9) AS z, round(log_odds, 9) AS log_odds,
       CAST(n AS BIGINT) AS count, CAST(against AS BIGINT) AS count_against
FROM scored
WHERE n + against > 0
      AND term NOT IN (SELECT fts_main_documents.fold(fts_main_documents.composed(word)) FROM fts_main_documents.stopwords)
ORDER BY grp, scored.log_odds / sqrt(1 / y + 1 / scored.z) DESC, term;
