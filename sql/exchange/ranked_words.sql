-- Each word of the chunks in found, with the numbers of the chunks that hold it: by what the word adds to their BM25 score
-- (see bm25_contributions.sql; idf is one for all of a word), the best first.
WITH lengths AS (
    SELECT rid, CAST(sum(len) + $heading_weight * sum(heading_len) AS DOUBLE) AS length FROM found GROUP BY rid
),
scored AS (
    SELECT word, rid, tf + $heading_weight * heading_tf AS weight, length, (SELECT greatest(avg(length), 1) FROM lengths) AS average
    FROM found JOIN lengths USING (rid)
)
SELECT word, string_agg(CAST(rid AS VARCHAR), ' ' ORDER BY round(weight / (weight + 0.3 + 0.9 * length / average), 9) DESC, rid) AS numbers
FROM scored
GROUP BY word
ORDER BY word;
