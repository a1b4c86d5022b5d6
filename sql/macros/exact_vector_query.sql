-- The k chunks nearest to a vector by cosine, from a scan of every vector; see exact_vector_search.
CREATE OR REPLACE MACRO exact_vector_query(query_vector, k := 10,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    FROM exact_vector_search(query_vector, k := k, collection := collection, tags_any := tags_any, tags_all := tags_all,
        passing := passing_chunks(metadata));
