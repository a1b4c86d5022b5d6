-- Both legs and their fusion: FROM hybrid_query('window functions', (SELECT embedding FROM query_embeddings WHERE …)).
-- fusion := 'adaptive' (both exact scores of every candidate, by weights found for the question), 'rrf' (reciprocal rank
-- fusion), 'weighted' (min-max of each leg's pool) or 'convex' (both exact scores, by alpha); the pool is the number of
-- candidates of each leg, 50 unless given, 100 for 'adaptive'.
CREATE OR REPLACE MACRO hybrid_query(query_text, query_vector, k := 10, pool := NULL, fusion := 'adaptive', rrf_k := 60,
        vector_weight := 0.5, alpha := 0.75, k1 := 1.2, b := 0.75, text_weight := 1.0, heading_weight := NULL, codes_pool := 750,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    WITH terms AS MATERIALIZED (
        SELECT list(t.termid ORDER BY t.term) FILTER (t.df > 0) AS termids, list(t.df ORDER BY t.term) FILTER (t.df > 0) AS dfs,
               coalesce(heading_weight, (SELECT CAST(value AS DOUBLE) FROM embedding_metadata WHERE key = 'header_weight'))
                   AS heading_weight,
               -- Of the chunks that hold a word, at most so many, a sample of 300 is enough.
               CAST(greatest(1, ceil(least(sum(t.df), (SELECT s.num_docs FROM fts_main_documents.stats AS s)) / 300)) AS UBIGINT)
                   AS one_in,
               -- Where the words that chunks hold have less than half of the weight, in whole billionths, they are no reason for a
               -- small trust.
               CASE WHEN 2 * sum(t.weight) FILTER (t.df > 0) < sum(t.weight) THEN 0.5 ELSE 0.01 END AS least_trust
        FROM (
            SELECT q.term, q.termid, q.df, CAST(round(1e9 * ln(1 + (s.num_docs - q.df + 0.5) / (q.df + 0.5))) AS HUGEINT) AS weight
            FROM query_terms(query_text) AS q CROSS JOIN fts_main_documents.stats AS s
        ) AS t
    ),
    vector_leg AS MATERIALIZED (
        SELECT v.rid, v.score, row_number() OVER (ORDER BY v.score DESC, v.doc_id, v.chunk_index) AS rank,
               min(v.score) OVER () AS low, max(v.score) OVER () AS high
        FROM vector_query(query_vector, k := greatest(coalesce(pool, CASE WHEN fusion = 'adaptive' THEN 100 ELSE 50 END), k),
            pool := codes_pool, collection := collection, tags_any := tags_any, tags_all := tags_all, metadata := metadata) AS v
    ),
    lexical_leg AS MATERIALIZED (
        SELECT l.rid, l.score, row_number() OVER (ORDER BY l.score DESC, l.doc_id, l.chunk_index) AS rank,
               min(l.score) OVER () AS low, max(l.score) OVER () AS high
        FROM lexical_search((SELECT t.termids FROM terms AS t), (SELECT t.dfs FROM terms AS t),
            k := greatest(coalesce(pool, CASE WHEN fusion = 'adaptive' THEN 100 ELSE 50 END), k), k1 := k1, b := b,
            text_weight := text_weight, heading_weight := (SELECT t.heading_weight FROM terms AS t),
            collection := collection, tags_any := tags_any, tags_all := tags_all, passing := passing_chunks(metadata)) AS l
    ),
    candidates AS MATERIALIZED (
        SELECT rid, v.score AS vector_score, v.rank AS vector_rank, l.score AS lexical_score, l.rank AS lexical_rank,
               CASE WHEN v.high > v.low THEN (v.score - v.low) / (v.high - v.low) WHEN v.rid IS NULL THEN 0 ELSE 1 END AS vector_part,
               CASE WHEN l.high > l.low THEN (l.score - l.low) / (l.high - l.low) WHEN l.rid IS NULL THEN 0 ELSE 1 END AS lexical_part
        FROM vector_leg AS v FULL JOIN lexical_leg AS l USING (rid)
    ),
    exact AS MATERIALIZED (
        FROM pair_scores((SELECT t.termids FROM terms AS t), (SELECT t.dfs FROM terms AS t), query_vector, (SELECT list(c.rid) FROM candidates AS c), k1 := k1, b := b,
            text_weight := text_weight, heading_weight := (SELECT t.heading_weight FROM terms AS t),
            nth := (SELECT t.one_in FROM terms AS t WHERE fusion = 'adaptive'))
    ),
    -- Sums of whole billionths are exact, so that no order of adding changes them.
    sums AS (
        SELECT count(*) AS n, sum(p.x) AS x, sum(p.y) AS y, sum(p.x * p.x) AS xx, sum(p.y * p.y) AS yy, sum(p.x * p.y) AS xy
        FROM (
            SELECT CAST(round(e.vector_score * 1e9) AS HUGEINT) AS x, CAST(round(e.lexical_score * 1e9) AS HUGEINT) AS y
            FROM exact AS e
            WHERE e.sampled AND e.vector_score IS NOT NULL
        ) AS p
    ),
    -- trust is how far the cosines are believed, by their correlation with BM25; gap how far the best BM25 is above the tenth.
    weights AS MATERIALIZED (
        SELECT CASE WHEN s.n < 30 OR s.n * s.yy = s.y * s.y THEN 1
                    WHEN s.n * s.xx = s.x * s.x THEN t.least_trust
                    ELSE least(1, greatest(t.least_trust, round((s.n * s.xy - s.x * s.y)
                        / (sqrt(CAST(s.n * s.xx - s.x * s.x AS DOUBLE)) * sqrt(CAST(s.n * s.yy - s.y * s.y AS DOUBLE))), 9) / 0.3)) END AS trust,
               (SELECT CASE WHEN count(*) < 10 OR max(l.score) <= 0 THEN 1
                    ELSE greatest(0.05, (max(l.score) - max(l.score) FILTER (l.rank = 10)) / max(l.score)) END
                FROM lexical_leg AS l) AS gap
        FROM sums AS s, terms AS t
    ),
    scored AS (
        SELECT c.rid, c.vector_score, c.vector_rank, c.lexical_score, c.lexical_rank,
               round(CASE CAST(fusion AS ENUM ('adaptive', 'rrf', 'weighted', 'convex'))
                   WHEN 'rrf' THEN coalesce(1 / (rrf_k + c.vector_rank), 0) + coalesce(1 / (rrf_k + c.lexical_rank), 0)
                   WHEN 'weighted' THEN vector_weight * c.vector_part + (1 - vector_weight) * c.lexical_part
                   ELSE CASE WHEN fusion = 'convex' THEN alpha ELSE 0.75 * w.trust END
                       * coalesce((e.vector_score + 1) / nullif(max(e.vector_score) OVER () + 1, 0), 0)
                       + CASE WHEN fusion = 'convex' THEN 1 - alpha ELSE 0.5 * w.gap END
                       * coalesce(e.lexical_score / nullif(max(e.lexical_score) OVER (), 0), 0) END, 9) AS score,
               fusion = 'adaptive' AND (coalesce(c.vector_rank = 1 AND w.trust >= 0.5, false)
                   OR coalesce(c.lexical_rank = 1 AND w.gap >= 0.25, false)) AS leads
        FROM candidates AS c LEFT JOIN exact AS e ON fusion IN ('adaptive', 'convex') AND e.rid = c.rid, weights AS w
    ),
    placed AS (
        SELECT s.*, row_number() OVER (PARTITION BY s.leads ORDER BY s.score DESC) + count(*) FILTER (s.leads) OVER () AS place
        FROM scored AS s
    ),
    -- The first of a leg is among the first five: it gets a billionth more than the last that it needs to pass.
    fused AS (
        SELECT p.rid, p.vector_score, p.vector_rank, p.lexical_score, p.lexical_rank,
               CASE WHEN p.leads THEN greatest(p.score, round(max(p.score) FILTER (NOT p.leads AND p.place = 6) OVER () + 1 / 1e9, 9))
                    ELSE p.score END AS score
        FROM placed AS p
    )
    SELECT d.node_id, f.score, d.text, d.doc_id, d.chunk_index, d.heading_path, d.page, d.collection, d.tags,
           f.vector_score, f.vector_rank, f.lexical_score, f.lexical_rank, d.rid
    FROM fused AS f JOIN documents AS d ON d.rid = f.rid
    ORDER BY f.score DESC, d.doc_id, d.chunk_index
    LIMIT k;
