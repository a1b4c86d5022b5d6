-- The k chunks nearest to a vector by cosine: FROM vector_query((SELECT embedding FROM query_embeddings WHERE …)).
-- See vector_search for how it is done.
CREATE OR REPLACE MACRO vector_query(query_vector, k := 10, pool := 500,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    FROM vector_search(query_vector, sign_words(query_vector), k := k, pool := pool,
        collection := collection, tags_any := tags_any, tags_all := tags_all, metadata := metadata);
