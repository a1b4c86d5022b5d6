-- A query's vector, or an error where there is none: a hybrid search without one would silently be a lexical search.
CREATE OR REPLACE MACRO given_vector(vector) AS
    CASE WHEN vector IS NULL
         THEN error('there is no query vector (NULL): store one with sqlrag embed, or name a chunk that exists')
         WHEN NOT coalesce(isfinite(TRY(vector_length(vector))) AND vector_length(vector) > 0, false)
         THEN error('the query vector is zero or not finite')
         ELSE CAST(vector AS FLOAT[384]) END;
