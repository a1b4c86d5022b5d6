-- BM25 of every chunk that holds one of the terms: rid, score, matched (how many of the terms it holds). See
-- bm25_contributions for the formula.
CREATE OR REPLACE MACRO bm25_scores(termids, dfs, k1 := 1.2, b := 0.75, text_weight := 1.0, heading_weight := 3.0,
        boosts := NULL, totals := NULL) AS TABLE
    SELECT c.rid, sum(c.contribution) / 1e9 AS score, count(*) AS matched
    FROM bm25_contributions(termids, dfs, k1 := k1, b := b, text_weight := text_weight, heading_weight := heading_weight,
        boosts := boosts, totals := totals) AS c
    GROUP BY c.rid;
