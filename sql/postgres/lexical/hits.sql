-- The k best of given chunks that meet conditions, with ties by document and place.
SELECT rid, doc_id, chunk_index, given.score, node_id
FROM unnest(%(rids)s::bigint[], %(scores)s::double precision[]) AS given(given_rid, score) JOIN chunks ON rid = given_rid
WHERE /* conditions */ true
ORDER BY given.score DESC, doc_id, chunk_index
LIMIT %(k)s;
