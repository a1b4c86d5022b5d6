-- The parts of both exact scores of given chunks: the vector, and the score of lexical_search (0 where no word matches).
WITH words AS MATERIALIZED (
    SELECT query::tsquery AS query, idf FROM unnest(%(words)s::text[], %(idfs)s::double precision[]) AS given(query, idf)
)
SELECT rid, embedding,
       coalesce(round((SELECT sum(w.idf * ts_rank_cd(%(weights)s::real[], lexemes, w.query, 32)) FROM words AS w)::numeric, 9), 0)
           ::double precision AS score
FROM chunks
WHERE rid = ANY(%(rids)s::bigint[])
ORDER BY rid;
