-- The words that stand out in each cluster of staged_clusters, by class-based TF-IDF (Grootendorst 2022, arXiv:2203.05794):
-- sqrt(tf(t, c)) * ln(1 + a / f(t)), with tf the share of the term among the words of the cluster, f(t) its number in all of them,
-- and a the mean number of words of a cluster. A term counts once a chunk, so that one which is repeated in a single chunk labels
-- nothing; the root is BERTopic's reduce_frequent_words, without which the most common words label every cluster. A term is shown as
-- its most common word. Stop words, numbers and single letters do not count.
WITH shown AS (
    SELECT d.termid, arg_max(w.word, (w.df, -length(w.word), w.word)) AS word
    FROM fts_main_documents.words AS w JOIN fts_main_documents.dict AS d ON d.term = w.term
    WHERE w.word NOT IN (SELECT word FROM fts_main_documents.stopwords) AND length(w.word) > 1
          AND NOT regexp_matches(w.word, '^[\p{N}_]+$')
    GROUP BY d.termid
), counts AS (
    SELECT c.cluster, p.termid, CAST(count(*) AS DOUBLE) AS n
    FROM fts_main_documents.postings AS p JOIN staged_clusters AS c ON c.rid = p.rid
    WHERE p.termid IN (SELECT termid FROM shown)
    GROUP BY c.cluster, p.termid
), sizes AS (
    SELECT cluster, sum(n) AS size FROM counts GROUP BY cluster
), totals AS (
    SELECT termid, sum(n) AS total FROM counts GROUP BY termid
), scores AS (
    SELECT n.cluster, s.word, round(sqrt(n.n / z.size) * ln(1 + (SELECT avg(size) FROM sizes) / t.total), 9) AS score
    FROM counts AS n JOIN sizes AS z ON z.cluster = n.cluster JOIN totals AS t ON t.termid = n.termid
         JOIN shown AS s ON s.termid = n.termid
), ranked AS (
    SELECT cluster, word, row_number() OVER (PARTITION BY cluster ORDER BY score DESC, word) AS place FROM scores
)
SELECT cluster, string_agg(word, ', ' ORDER BY place) AS label
FROM ranked
WHERE place <= $words
GROUP BY cluster
ORDER BY cluster;
