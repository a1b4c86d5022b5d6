-- The k best chunks by BM25 for a question in words: FROM lexical_query('window functions', k := 5). conjunctive asks for
-- chunks that hold all of the words; heading_weight is the file's own unless given.
CREATE OR REPLACE MACRO lexical_query(query_text, k := 10, k1 := 1.2, b := 0.75, text_weight := 1.0, heading_weight := NULL, conjunctive := false,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    WITH terms AS MATERIALIZED (
        SELECT list(t.termid ORDER BY t.term) FILTER (t.df > 0) AS termids, list(t.df ORDER BY t.term) FILTER (t.df > 0) AS dfs,
               CASE WHEN conjunctive THEN count(*) ELSE 1 END AS at_least,
               coalesce(heading_weight, (SELECT CAST(value AS DOUBLE) FROM embedding_metadata WHERE key = 'header_weight'))
                   AS heading_weight
        FROM query_terms(query_text) AS t
    )
    FROM lexical_search((SELECT t.termids FROM terms AS t), (SELECT t.dfs FROM terms AS t), k := k, k1 := k1, b := b,
        text_weight := text_weight, heading_weight := (SELECT t.heading_weight FROM terms AS t), at_least := (SELECT t.at_least FROM terms AS t), collection := collection,
        tags_any := tags_any, tags_all := tags_all, passing := passing_chunks(metadata));
