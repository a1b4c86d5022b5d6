-- The k chunks nearest to a vector by cosine: FROM vector_query((SELECT embedding FROM query_embeddings WHERE …)).
-- See vector_search for how it is done; its inner names differ from these, or DuckDB 1.3 takes one for the other. A
-- dimension weighs 0 in the fifth of them where the query is nearest to zero, 1 up to three fifths, 2 up to 85 of 100,
-- then 3. The parts end in an aggregate of their one row, or DuckDB would plan them anew wherever they are read: it forgets
-- MATERIALIZED in a macro that it reads from a file.
CREATE OR REPLACE MACRO vector_query(query_vector, k := 10, pool := 750,
        collection := NULL, tags_any := NULL, tags_all := NULL, metadata := NULL) AS TABLE
    WITH question AS MATERIALIZED (
        SELECT any_value(v) AS v, any_value(list_sort(list_transform(CAST(v AS FLOAT[]), lambda x: abs(x)))) AS sizes
        FROM (SELECT given_vector(g.v) AS v FROM (SELECT CAST(query_vector AS FLOAT[384]) AS v) AS g)
    ),
    steps AS (
        SELECT v, sizes[1 + length(sizes) * 20 // 100] AS one, sizes[1 + length(sizes) * 60 // 100] AS two,
               sizes[1 + length(sizes) * 85 // 100] AS three
        FROM question
    ),
    codes AS MATERIALIZED (
        SELECT any_value(sign_words(v)) AS signs,
               any_value(pack_words(list_transform(CAST(v AS FLOAT[]), lambda x: abs(x) >= one AND (abs(x) < two OR abs(x) >= three)))) AS low,
               any_value(pack_words(list_transform(CAST(v AS FLOAT[]), lambda x: abs(x) >= two))) AS high
        FROM steps
    )
    FROM vector_search((SELECT question.v FROM question), (SELECT c.signs FROM codes AS c), (SELECT c.low FROM codes AS c),
        (SELECT c.high FROM codes AS c), k := k, pool := pool, collection := collection, tags_any := tags_any,
        tags_all := tags_all, passing := passing_chunks(metadata));
