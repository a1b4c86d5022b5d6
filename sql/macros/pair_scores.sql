-- Both exact scores, cosine and BM25, of given chunks (a list of rid); a chunk without any of the terms has BM25 0.
CREATE OR REPLACE MACRO pair_scores(terms, query_vector, rids, k1 := 1.2, b := 0.75, heading_weight := 2.0) AS TABLE
    WITH q AS MATERIALIZED (SELECT CAST(query_vector AS FLOAT[384]) AS v)
    SELECT d.rid, round(array_inner_product(d.embedding, q.v) / sqrt(array_inner_product(q.v, q.v)), 9) AS vector_score,
           coalesce(s.score, 0) AS lexical_score
    FROM q, documents AS d
    LEFT JOIN bm25_scores(terms, k1 := k1, b := b, heading_weight := heading_weight) AS s ON s.rid = d.rid
    WHERE d.rid IN (SELECT unnest(rids))
    ORDER BY d.rid;
