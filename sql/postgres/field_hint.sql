-- The JSON type of a metadata field in the first chunk that has it.
SELECT jsonb_typeof(metadata -> %(field)s::text) FROM chunks WHERE metadata ? %(field)s::text ORDER BY rid LIMIT 1;
