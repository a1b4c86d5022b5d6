-- The k best chunks by BM25 for a question in words: FROM lexical_query('window functions', k := 5).
CREATE OR REPLACE MACRO lexical_query(query_text, k := 10, k1 := 1.2, b := 0.75, heading_weight := 2.0, conjunctive := false,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    FROM lexical_search((SELECT list(t.term) FROM query_terms(query_text) AS t), k := k, k1 := k1, b := b,
        heading_weight := heading_weight, conjunctive := conjunctive, collection := collection, tags_any := tags_any,
        tags_all := tags_all, metadata := metadata);
