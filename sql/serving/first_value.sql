-- A metadata field in the first chunk that has it and not null, as JSON; place is a JSON pointer.
SELECT CAST(json_extract(metadata_, $place) AS VARCHAR)
FROM documents
WHERE coalesce(json_type(metadata_, $place), 'NULL') <> 'NULL'
ORDER BY rid
LIMIT 1;
