-- The documents that meet every condition that is not NULL. The filters on tags and metadata look at the document itself
-- and at its chunks: it is chosen where either the one or all of the others pass.
SELECT s.doc_id
FROM source_documents AS s
LEFT JOIN (
    SELECT doc_id,
           bool_and(passes_filters(collection, tags, metadata_, NULL, CAST($tags_any AS VARCHAR[]), CAST($tags_all AS VARCHAR[]), CAST($metadata AS JSON),
               doc_id := doc_id, node_id := node_id)) AS pass
    FROM documents
    GROUP BY doc_id
) AS c ON c.doc_id = s.doc_id
WHERE (CAST($doc_ids AS VARCHAR[]) IS NULL OR list_contains(CAST($doc_ids AS VARCHAR[]), s.doc_id))
  AND (CAST($checksum AS VARCHAR) IS NULL OR s.checksum = CAST($checksum AS VARCHAR))
  AND (CAST($collection AS VARCHAR[]) IS NULL OR list_contains(CAST($collection AS VARCHAR[]), s.collection))
  AND (coalesce(c.pass, false)
       OR passes_filters(s.collection, s.tags, s.metadata_, NULL, CAST($tags_any AS VARCHAR[]), CAST($tags_all AS VARCHAR[]), CAST($metadata AS JSON),
           doc_id := s.doc_id))
ORDER BY s.doc_id;
