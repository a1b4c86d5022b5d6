-- The chunks in found that hold each word: the word's place among all words and the chunk's number, by what the word adds
-- to the chunk's BM25 score (see bm25_contributions.sql; idf is one for all of a word), the best first. Rows and not a list
-- for each word: a sort goes to disk where an ordered aggregate must fit into memory.
WITH lengths AS (
    SELECT rid, CAST(sum(len) + $heading_weight * sum(heading_len) AS DOUBLE) AS length FROM found GROUP BY rid
),
scored AS (
    SELECT w.place, f.rid, f.tf + $heading_weight * f.heading_tf AS weight, l.length,
           (SELECT greatest(avg(length), 1) FROM lengths) AS average
    FROM found AS f JOIN lengths AS l USING (rid) JOIN words AS w USING (word)
)
SELECT place, rid AS number
FROM scored
ORDER BY place, round(weight / (weight + 0.3 + 0.9 * length / average), 9) DESC, rid;
