-- The k chunks nearest to a vector by cosine, from a scan of every vector.
CREATE OR REPLACE MACRO exact_vector_query(query_vector, k := 10,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    SELECT d.node_id,
           round(array_inner_product(d.embedding, CAST(query_vector AS FLOAT[384]))
                 / sqrt(array_inner_product(CAST(query_vector AS FLOAT[384]), CAST(query_vector AS FLOAT[384]))), 9) AS score,
           d.text, d.doc_id, d.chunk_index, d.heading_path, d.page, d.collection, d.tags, d.rid
    FROM documents AS d
    WHERE CAST(query_vector AS FLOAT[384]) IS NOT NULL
      AND passes_filters(d.collection, d.tags, d.metadata_, collection, tags_any, tags_all, metadata)
    ORDER BY score DESC, d.doc_id, d.chunk_index
    LIMIT k;
