-- The rows of tables in the collections, in all if NULL.
SELECT s.doc_id
FROM source_documents AS s
WHERE starts_with(s.mime, $row)
  AND (CAST($collection AS VARCHAR[]) IS NULL OR list_contains($collection, s.collection))
ORDER BY s.doc_id;
