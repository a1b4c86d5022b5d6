-- The BM25 score of a chunk, NULL where it holds none of the words; named and called as in DuckDB's fts extension:
-- SELECT node_id, fts_main_documents.match_bm25(node_id, 'window functions') AS score FROM documents.
-- One query text a statement. fields := 'text', 'heading_path' or 'text,heading_path'.
-- A subquery without an aggregate could return two rows, which DuckDB treats as a side effect: then no WHERE could name
-- the score. The inner names are ones that no caller uses: in a WHERE, an argument node_id would mean the macro's own column.
CREATE OR REPLACE MACRO fts_main_documents.match_bm25(input_id, query_string, fields := NULL, k := 1.2, b := 0.75, conjunctive := 0) AS (
    SELECT fts_scored.score
    FROM bm25_scores(
            (SELECT list(t.termid ORDER BY t.term) FROM query_terms(query_string) AS t WHERE t.df > 0),
            (SELECT list(t.df ORDER BY t.term) FROM query_terms(query_string) AS t WHERE t.df > 0), k1 := k, b := b,
            text_weight := CASE WHEN fields IS NULL OR list_contains(fts_main_documents.fields_of(fields), 'text') THEN 1.0 ELSE 0.0 END,
            heading_weight := (
                SELECT max(CASE WHEN fields IS NULL OR list_contains(fts_main_documents.fields_of(fields), 'heading_path')
                                THEN CAST(m.value AS DOUBLE) ELSE 0.0 END)
                FROM embedding_metadata AS m WHERE m.key = 'header_weight'))
         AS fts_scored
    JOIN (SELECT rid AS fts_rid, node_id AS fts_node_id FROM documents) AS fts_chunk ON fts_chunk.fts_rid = fts_scored.rid
    WHERE fts_chunk.fts_node_id = input_id
      AND (CAST(conjunctive AS INTEGER) = 0 OR fts_scored.matched = (SELECT count(*) FROM query_terms(query_string)))
);
