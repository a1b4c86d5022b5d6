-- The BM25 score of a chunk, NULL where it holds none of the words; named and called as in DuckDB's fts extension:
-- SELECT node_id, fts_main_documents.match_bm25(node_id, 'window functions') AS score FROM documents.
-- One query text a statement. fields := 'text', 'heading_path' or 'text,heading_path'.
-- The inner names are ones that no caller uses: in a WHERE, an argument node_id would mean the macro's own column.
CREATE OR REPLACE MACRO fts_main_documents.match_bm25(input_id, query_string, fields := NULL, k := 1.2, b := 0.75, conjunctive := 0) AS (
    WITH fts_terms AS MATERIALIZED (
        SELECT list(t.termid ORDER BY t.term) FILTER (t.df > 0) AS termids, list(t.df ORDER BY t.term) FILTER (t.df > 0) AS dfs,
               CASE WHEN CAST(conjunctive AS INTEGER) <> 0 THEN count(*) ELSE 1 END AS at_least,
               CASE WHEN fields IS NULL OR list_contains(fts_main_documents.fields_of(fields), 'text') THEN 1.0 ELSE 0.0 END
                   AS text_weight,
               CASE WHEN fields IS NULL OR list_contains(fts_main_documents.fields_of(fields), 'heading_path')
                    THEN (SELECT CAST(value AS DOUBLE) FROM embedding_metadata WHERE key = 'header_weight') ELSE 0.0 END
                   AS heading_weight
        FROM query_terms(query_string) AS t
    )
    SELECT fts_scored.score
    FROM bm25_scores((SELECT termids FROM fts_terms), (SELECT dfs FROM fts_terms), k1 := k, b := b,
            text_weight := (SELECT text_weight FROM fts_terms), heading_weight := (SELECT heading_weight FROM fts_terms))
         AS fts_scored
    JOIN (SELECT rid AS fts_rid, node_id AS fts_node_id FROM documents) AS fts_chunk ON fts_chunk.fts_rid = fts_scored.rid
    WHERE fts_chunk.fts_node_id = input_id AND fts_scored.matched >= (SELECT at_least FROM fts_terms)
);
