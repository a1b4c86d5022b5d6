-- The vectors of given chunks.
SELECT rid, embedding FROM chunks WHERE rid = ANY(%(rids)s::bigint[]) ORDER BY rid;
