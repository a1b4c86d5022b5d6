-- The k chunks nearest to a vector by cosine: FROM vector_query((SELECT embedding FROM query_embeddings WHERE …)).
-- See vector_search for how it is done.
CREATE OR REPLACE MACRO vector_query(query_vector, k := 10, pool := 500,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    WITH q AS MATERIALIZED (SELECT CAST(query_vector AS FLOAT[384]) AS v),
    c AS MATERIALIZED (SELECT sign_words(q.v) AS words FROM q)
    FROM vector_search((SELECT q.v FROM q), (SELECT c.words FROM c), k := k, pool := pool,
        collection := collection, tags_any := tags_any, tags_all := tags_all, metadata := metadata);
