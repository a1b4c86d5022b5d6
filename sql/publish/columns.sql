-- The columns of tables that are to be published of the collections, of all if NULL.
SELECT DISTINCT unnest(json_keys(s.metadata_)) AS name
FROM source_documents AS s
WHERE starts_with(s.mime, $row)
  AND (CAST($collection AS VARCHAR[]) IS NULL OR list_contains($collection, s.collection))
ORDER BY name;
