-- How many of the chunks that meet conditions are nearer to a vector than one of them, but for rounding.
SELECT count(*)
FROM chunks
WHERE embedding <=> %(query_vector)s < (SELECT embedding <=> %(query_vector)s FROM chunks WHERE rid = %(rid)s) - 1e-6
  AND (/* conditions */ true);
