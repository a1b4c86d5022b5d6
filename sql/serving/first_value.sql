-- A metadata field in the first chunk, of some collections or all, that has it and not null, as JSON; place is a JSON pointer.
SELECT CAST(json_extract(metadata_, $place) AS VARCHAR)
FROM documents
WHERE coalesce(json_type(metadata_, $place), 'NULL') <> 'NULL' AND ($collection IS NULL OR list_contains($collection, collection))
ORDER BY rid
LIMIT 1;
