-- Both exact scores, cosine and BM25, of given chunks (a list of rid); a chunk without any of the terms has BM25 0, one
-- with a damaged vector no cosine. The
-- terms are two lists, see bm25_scores.
CREATE OR REPLACE MACRO pair_scores(termids, dfs, query_vector, rids, k1 := 1.2, b := 0.75, heading_weight := 3.0) AS TABLE
    WITH searched AS MATERIALIZED (SELECT CAST(query_vector AS FLOAT[384]) AS v)
    SELECT d.rid,
           CASE WHEN isfinite(TRY(array_inner_product(d.embedding, searched.v)))
                THEN round(TRY(array_inner_product(d.embedding, searched.v)) / sqrt(array_inner_product(searched.v, searched.v)), 9) END AS vector_score,
           coalesce(s.score, 0) AS lexical_score
    FROM documents AS d
    LEFT JOIN bm25_scores(termids, dfs, k1 := k1, b := b, heading_weight := heading_weight) AS s ON s.rid = d.rid, searched
    WHERE d.rid IN (SELECT unnest(rids))
    ORDER BY d.rid;
