-- The exact cosine of a chunk, and its place by it among all chunks that pass the filters.
SELECT ranked.score, ranked.place
FROM (
    SELECT v.rid, v.score, row_number() OVER (ORDER BY v.score DESC, v.doc_id, v.chunk_index) AS place
    FROM exact_vector_search($query_vector, k := 2147483647, collection := $collection, tags_any := $tags_any,
        tags_all := $tags_all, passing := $passing) AS v
) AS ranked
WHERE ranked.rid = $rid;
