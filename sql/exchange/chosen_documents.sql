-- The documents to export and how many chunks each has: those of the collections that pass the other filters themselves
-- or by one of their chunks. NULL leaves a condition out.
SELECT s.doc_id, coalesce(c.chunks, 0) AS chunks
FROM source_documents AS s
LEFT JOIN (
    SELECT doc_id,
           count(*) AS chunks,
           bool_or(passes_filters(collection, tags, metadata_, NULL, CAST($tags_any AS VARCHAR[]), CAST($tags_all AS VARCHAR[]), CAST($metadata AS JSON),
               doc_id := doc_id, node_id := node_id)) AS pass
    FROM documents
    GROUP BY doc_id
) AS c ON c.doc_id = s.doc_id
WHERE (CAST($collection AS VARCHAR[]) IS NULL OR list_contains(CAST($collection AS VARCHAR[]), s.collection))
  AND (coalesce(c.pass, false)
       OR passes_filters(s.collection, s.tags, s.metadata_, NULL, CAST($tags_any AS VARCHAR[]), CAST($tags_all AS VARCHAR[]), CAST($metadata AS JSON),
           doc_id := s.doc_id))
ORDER BY CASE WHEN $by_collection THEN s.collection END, s.doc_id;
