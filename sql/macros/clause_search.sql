-- The k best chunks by BM25 that hold what a question with quotes or stars asks for. clauses gives each term the number
-- of the word that it comes from (several for a prefix); a chunk has to hold a term of each of the clauses in required, and
-- the phrases. The headings are read by a text for query(), so that a search without phrases needs no function of the json
-- extension.
CREATE OR REPLACE MACRO clause_search(termids, dfs, clauses, required, phrases, k := 10, k1 := 1.2, b := 0.75, text_weight := 1.0,
        heading_weight := 3.0, totals := NULL, collection := NULL, tags_any := NULL, tags_all := NULL, passing := NULL) AS TABLE
    WITH numbered AS (SELECT unnest(termids) AS termid, unnest(clauses) AS clause),
    matching AS MATERIALIZED (
        SELECT c.rid, sum(c.contribution) / 1e9 AS score
        FROM bm25_contributions(termids, dfs, k1 := k1, b := b, text_weight := text_weight, heading_weight := heading_weight,
            totals := totals) AS c
        JOIN numbered ON numbered.termid = c.termid
        GROUP BY c.rid
        HAVING count(DISTINCT CASE WHEN list_contains(required, numbered.clause) THEN numbered.clause END) = length(required)
    )
    SELECT held.node_id, held.score, held.text, held.doc_id, held.chunk_index, held.heading_path, held.page, held.collection, held.tags, held.rid FROM (
        SELECT d.node_id, m.score, d.text, d.doc_id, d.chunk_index, d.heading_path, d.page, d.collection, d.tags, d.rid, d.shown
        FROM matching AS m JOIN documents AS d ON d.rid = m.rid
        WHERE passes(d.rid, d.collection, d.tags, passing, collection, tags_any, tags_all)
        -- Every row; without a LIMIT here DuckDB would look for the phrases in all chunks, before the join.
        LIMIT 2147483647
    ) AS held
    LEFT JOIN query(CASE WHEN length(phrases) = 0 THEN 'SELECT 0 AS rid, '''' AS headings WHERE false' ELSE
        'SELECT d.rid, fts_main_documents.heading_text(d.heading_path, d.chunk_index, d.metadata_, d.tags) AS headings
         FROM documents AS d WHERE d.rid IN (SELECT m.rid FROM matching AS m)' END) AS h ON h.rid = held.rid
    WHERE length(phrases) = 0 OR holds_phrases(
        CASE WHEN text_weight > 0 THEN visible(held.text, held.shown) ELSE '' END,
        CASE WHEN heading_weight > 0 THEN [h.headings] ELSE [] END, phrases)
    ORDER BY held.score DESC, held.doc_id, held.chunk_index
    LIMIT k;
