-- The k best chunks by BM25 for terms (lists, see bm25_contributions), with ties by doc_id and chunk_index; at_least is how
-- many of the terms a chunk must hold.
CREATE OR REPLACE MACRO lexical_search(termids, dfs, k := 10, k1 := 1.2, b := 0.75, text_weight := 1.0, heading_weight := 3.0,
        boosts := NULL, at_least := 1, totals := NULL,
        collection := NULL, tags_any := NULL, tags_all := NULL, passing := NULL) AS TABLE
    SELECT d.node_id, s.score, d.text, d.doc_id, d.chunk_index, d.heading_path, d.page, d.collection, d.tags, d.rid
    FROM bm25_scores(termids, dfs, k1 := k1, b := b, text_weight := text_weight, heading_weight := heading_weight, boosts := boosts,
        totals := totals) AS s
    JOIN documents AS d ON d.rid = s.rid
    WHERE s.matched >= at_least
      AND passes(d.rid, d.collection, d.tags, passing, collection, tags_any, tags_all)
    ORDER BY s.score DESC, d.doc_id, d.chunk_index
    LIMIT k;
