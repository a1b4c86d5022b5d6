-- What both exact scores of given chunks are made of: the vector, and ts_rank_cd (0 where it does not match).
SELECT rid, embedding,
       round(ts_rank_cd(%(weights)s::real[], lexemes, %(ranked)s::tsquery, %(normalization)s)::numeric, 9)::double precision AS score
FROM chunks
WHERE rid = ANY(%(rids)s::bigint[])
ORDER BY rid;
