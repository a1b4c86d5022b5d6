-- The parts of both exact scores of given chunks: the vector, and the score of lexical_search (0 where no word matches).
-- Where words to sample by are given, every nth chunk that matches them is among these, marked as sampled.
WITH words AS MATERIALIZED (
    SELECT query::tsquery AS query, idf FROM unnest(%(words)s::text[], %(idfs)s::double precision[]) AS given(query, idf)
), nths AS MATERIALIZED (
    SELECT rid FROM chunks
    WHERE lexemes @@ %(sampled)s::text::tsquery AND mod(('x' || left(md5(node_id), 8))::bit(32)::bigint, %(nth)s::bigint) = 0
)
SELECT rid, embedding,
       coalesce(round((SELECT sum(w.idf * ts_rank_cd(%(weights)s::real[], lexemes, w.query, 32)) FROM words AS w)::numeric, 9), 0)
           ::double precision AS score,
       rid = ANY(ARRAY(SELECT n.rid FROM nths AS n)) AS sampled
FROM chunks
WHERE rid = ANY(%(rids)s::bigint[] || ARRAY(SELECT n.rid FROM nths AS n))
ORDER BY rid;
