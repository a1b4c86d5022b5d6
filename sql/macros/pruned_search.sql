-- The same as lexical_search without filters, for terms in two groups. Chunks are scored by the rare terms; the common
-- ones, which occur in many chunks, are looked up only for those chunks that may still come among the best k (MaxScore:
-- Turtle & Flood, Query Evaluation: Strategies and Optimizations, 1995). common_bound is what the common terms can add at
-- most, the sum of their (k1 + 1) * idf; it has to be below the score that k chunks reach by their rare terms, or a chunk
-- of common terms alone would be missed.
CREATE OR REPLACE MACRO pruned_search(rare_termids, rare_dfs, common_termids, common_dfs, common_bound, k := 10, k1 := 1.2,
        b := 0.75, text_weight := 1.0, heading_weight := 3.0, totals := NULL) AS TABLE
    WITH rare AS MATERIALIZED (
        SELECT r.rid, r.score
        FROM bm25_scores(rare_termids, rare_dfs, k1 := k1, b := b, text_weight := text_weight, heading_weight := heading_weight,
            totals := totals) AS r
    ),
    candidates AS MATERIALIZED (
        SELECT rare.rid, rare.score
        FROM rare
        WHERE rare.score >= (SELECT min(best.score) FROM (SELECT rare.score FROM rare ORDER BY rare.score DESC LIMIT k) AS best)
              - common_bound
    ),
    added AS (
        SELECT a.rid, sum(a.contribution) / 1e9 AS score
        FROM bm25_contributions(common_termids, common_dfs, k1 := k1, b := b, text_weight := text_weight, heading_weight := heading_weight,
            totals := totals) AS a
        WHERE a.rid IN (SELECT candidates.rid FROM candidates)
        GROUP BY a.rid
    )
    SELECT d.node_id, round(c.score + coalesce(added.score, 0), 9) AS score, d.text, d.doc_id, d.chunk_index, d.heading_path, d.page,
           d.collection, d.tags, d.rid
    FROM candidates AS c LEFT JOIN added ON added.rid = c.rid JOIN documents AS d ON d.rid = c.rid
    ORDER BY score DESC, d.doc_id, d.chunk_index
    LIMIT k;
