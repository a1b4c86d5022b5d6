-- The k chunks nearest to a vector by cosine, from a scan of every vector. A cosine that rounding puts beyond 1 is 1, here
-- and in vector_search and pair_scores.
CREATE OR REPLACE MACRO exact_vector_search(query_vector, k := 10,
        collection := NULL, tags_any := NULL, tags_all := NULL, passing := NULL) AS TABLE
    WITH searched AS MATERIALIZED (
        SELECT CAST(given_vector(g.v) AS DOUBLE[384]) AS v, vector_length(g.v) AS length
        FROM (SELECT CAST(query_vector AS FLOAT[384]) AS v) AS g
    )
    SELECT d.node_id, greatest(-1, least(1, round(TRY(array_inner_product(CAST(d.embedding AS DOUBLE[384]), searched.v)) / searched.length, 9))) AS score,
           d.text, d.doc_id, d.chunk_index, d.heading_path, d.page, d.collection, d.tags, d.rid
    FROM documents AS d, searched
    WHERE passes(d.rid, d.collection, d.tags, passing, collection, tags_any, tags_all)
      AND isfinite(TRY(array_inner_product(CAST(d.embedding AS DOUBLE[384]), searched.v)))
    ORDER BY score DESC, d.doc_id, d.chunk_index
    LIMIT k;
