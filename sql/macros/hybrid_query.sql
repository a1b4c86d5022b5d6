-- Both legs and their fusion: FROM hybrid_query('window functions', (SELECT embedding FROM query_embeddings WHERE …)).
-- fusion := 'rrf' (reciprocal rank fusion), 'weighted' (min-max of each leg's pool) or 'convex' (both exact scores of
-- every candidate); the pool is the number of candidates of each leg.
CREATE OR REPLACE MACRO hybrid_query(query_text, query_vector, k := 10, pool := 50, fusion := 'rrf', rrf_k := 60,
        vector_weight := 0.5, alpha := 0.75, k1 := 1.2, b := 0.75, text_weight := 1.0, heading_weight := NULL, codes_pool := 750,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    WITH terms AS MATERIALIZED (
        SELECT list(t.termid ORDER BY t.term) AS termids, list(t.df ORDER BY t.term) AS dfs,
               coalesce(heading_weight, (SELECT CAST(value AS DOUBLE) FROM embedding_metadata WHERE key = 'header_weight'))
                   AS heading_weight
        FROM query_terms(query_text) AS t WHERE t.df > 0
    ),
    vector_leg AS MATERIALIZED (
        SELECT v.rid, v.score, row_number() OVER (ORDER BY v.score DESC, v.doc_id, v.chunk_index) AS rank,
               min(v.score) OVER () AS low, max(v.score) OVER () AS high
        FROM vector_query(query_vector, k := greatest(pool, k), pool := codes_pool, collection := collection,
            tags_any := tags_any, tags_all := tags_all, metadata := metadata) AS v
    ),
    lexical_leg AS MATERIALIZED (
        SELECT l.rid, l.score, row_number() OVER (ORDER BY l.score DESC, l.doc_id, l.chunk_index) AS rank,
               min(l.score) OVER () AS low, max(l.score) OVER () AS high
        FROM lexical_search((SELECT t.termids FROM terms AS t), (SELECT t.dfs FROM terms AS t), k := greatest(pool, k), k1 := k1, b := b, text_weight := text_weight, heading_weight := (SELECT t.heading_weight FROM terms AS t),
            collection := collection, tags_any := tags_any, tags_all := tags_all, passing := passing_chunks(metadata)) AS l
    ),
    candidates AS MATERIALIZED (
        SELECT rid, v.score AS vector_score, v.rank AS vector_rank, l.score AS lexical_score, l.rank AS lexical_rank,
               CASE WHEN v.high > v.low THEN (v.score - v.low) / (v.high - v.low) WHEN v.rid IS NULL THEN 0 ELSE 1 END AS vector_part,
               CASE WHEN l.high > l.low THEN (l.score - l.low) / (l.high - l.low) WHEN l.rid IS NULL THEN 0 ELSE 1 END AS lexical_part
        FROM vector_leg AS v FULL JOIN lexical_leg AS l USING (rid)
    ),
    exact AS (
        FROM pair_scores((SELECT t.termids FROM terms AS t), (SELECT t.dfs FROM terms AS t), query_vector, (SELECT list(c.rid) FROM candidates AS c), k1 := k1, b := b,
            text_weight := text_weight, heading_weight := (SELECT t.heading_weight FROM terms AS t))
    ),
    fused AS (
        SELECT c.rid, c.vector_score, c.vector_rank, c.lexical_score, c.lexical_rank,
               round(CASE CAST(fusion AS ENUM ('rrf', 'weighted', 'convex'))
                   WHEN 'rrf' THEN coalesce(1 / (rrf_k + c.vector_rank), 0) + coalesce(1 / (rrf_k + c.lexical_rank), 0)
                   WHEN 'weighted' THEN vector_weight * c.vector_part + (1 - vector_weight) * c.lexical_part
                   WHEN 'convex' THEN
                       alpha * coalesce((e.vector_score + 1) / nullif(max(e.vector_score) OVER () + 1, 0), 0)
                       + (1 - alpha) * coalesce(e.lexical_score / nullif(max(e.lexical_score) OVER (), 0), 0) END, 9) AS score
        FROM candidates AS c LEFT JOIN exact AS e ON fusion = 'convex' AND e.rid = c.rid
    )
    SELECT d.node_id, f.score, d.text, d.doc_id, d.chunk_index, d.heading_path, d.page, d.collection, d.tags,
           f.vector_score, f.vector_rank, f.lexical_score, f.lexical_rank, d.rid
    FROM fused AS f JOIN documents AS d ON d.rid = f.rid
    ORDER BY f.score DESC, d.doc_id, d.chunk_index
    LIMIT k;
