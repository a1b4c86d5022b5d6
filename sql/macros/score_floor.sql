-- The score that k chunks reach by the given terms alone (NULL where fewer than k hold one), and the number of chunks.
CREATE OR REPLACE MACRO score_floor(termids, dfs, k := 10, k1 := 1.2, b := 0.75, text_weight := 1.0, heading_weight := 3.0,
        totals := NULL) AS TABLE
    SELECT CASE WHEN count(*) = k THEN min(best.score) END AS reached,
           coalesce(CAST(totals AS DOUBLE[])[1], (SELECT s.num_docs FROM fts_main_documents.stats AS s)) AS num_docs
    FROM (
        SELECT f.score
        FROM bm25_scores(termids, dfs, k1 := k1, b := b, text_weight := text_weight, heading_weight := heading_weight,
            totals := totals) AS f
        ORDER BY f.score DESC
        LIMIT k
    ) AS best;
