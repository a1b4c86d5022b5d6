-- The BM25 score of a chunk, NULL where it holds none of the words; named and called as in DuckDB's fts extension:
-- SELECT node_id, fts_main_documents.match_bm25(node_id, 'window functions') AS score FROM documents.
-- One query text a statement. fields := 'text', 'heading_path' or 'text,heading_path'.
CREATE OR REPLACE MACRO fts_main_documents.match_bm25(input_id, query_string, fields := NULL, k := 1.2, b := 0.75, conjunctive := 0) AS (
    SELECT s.score
    FROM bm25_scores(
            (SELECT list(t.termid ORDER BY t.term) FROM query_terms(query_string) AS t WHERE t.df > 0),
            (SELECT list(t.df ORDER BY t.term) FROM query_terms(query_string) AS t WHERE t.df > 0), k1 := k, b := b,
            text_weight := CASE WHEN fields IS NULL OR list_contains(fts_main_documents.fields_of(fields), 'text') THEN 1.0 ELSE 0.0 END,
            heading_weight := CASE WHEN fields IS NULL OR list_contains(fts_main_documents.fields_of(fields), 'heading_path') THEN 2.0 ELSE 0.0 END) AS s
    JOIN documents AS d ON d.rid = s.rid
    WHERE d.node_id = input_id
      AND (CAST(conjunctive AS INTEGER) = 0 OR s.matched = (SELECT count(*) FROM query_terms(query_string)))
);
