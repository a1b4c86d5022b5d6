-- Both exact scores, cosine and BM25, of given chunks (a list of rid); a chunk without any of the terms has BM25 0, one
-- with a damaged vector no cosine. The terms are two lists, see bm25_scores.
-- With nth, every nth chunk that holds one of the terms is among them as well, marked as sampled. Which ones follows from
-- their document and place in it, so that several files and the file that is merged of them have the same sample.
CREATE OR REPLACE MACRO pair_scores(termids, dfs, query_vector, rids, k1 := 1.2, b := 0.75, text_weight := 1.0, heading_weight := 3.0,
        boosts := NULL, totals := NULL, nth := NULL) AS TABLE
    WITH searched AS MATERIALIZED (
        SELECT CAST(g.v AS DOUBLE[384]) AS v, vector_length(g.v) AS length
        FROM (SELECT CAST(query_vector AS FLOAT[384]) AS v) AS g
    ),
    wanted AS MATERIALIZED (SELECT unnest(rids) AS rid),
    added AS MATERIALIZED (
        SELECT a.rid, sum(a.contribution) / 1e9 AS score
        FROM bm25_contributions(termids, dfs, k1 := k1, b := b, text_weight := text_weight, heading_weight := heading_weight,
            boosts := boosts, totals := totals) AS a
        WHERE a.rid IN (
            SELECT wanted.rid FROM wanted
            UNION ALL SELECT n.rid FROM documents AS n WHERE hash(n.doc_id, n.chunk_index) % CAST(nth AS UBIGINT) = 0
        )
        GROUP BY a.rid
    )
    SELECT d.rid,
           CASE WHEN isfinite(TRY(array_inner_product(CAST(d.embedding AS DOUBLE[384]), searched.v)))
                THEN greatest(-1, least(1, round(TRY(array_inner_product(CAST(d.embedding AS DOUBLE[384]), searched.v)) / searched.length, 9))) END AS vector_score,
           coalesce(added.score, 0) AS lexical_score,
           added.rid IS NOT NULL AND coalesce(hash(d.doc_id, d.chunk_index) % CAST(nth AS UBIGINT) = 0, false) AS sampled
    FROM documents AS d LEFT JOIN added ON added.rid = d.rid, searched
    WHERE d.rid IN (SELECT wanted.rid FROM wanted UNION ALL SELECT added.rid FROM added)
    ORDER BY d.rid;
