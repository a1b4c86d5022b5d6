-- The columns of tables that are to be published of the collections, of all if NULL, with the collections that have each.
SELECT name, list(DISTINCT collection ORDER BY collection) AS collections
FROM (
    SELECT s.collection, unnest(json_keys(s.metadata_)) AS name
    FROM source_documents AS s
    WHERE starts_with(s.mime, $row)
      AND (CAST($collection AS VARCHAR[]) IS NULL OR list_contains($collection, s.collection))
)
GROUP BY name
ORDER BY name;
