-- A metadata field in the first chunk that has it and not null.
SELECT metadata -> %(field)s::text
FROM chunks
WHERE metadata ? %(field)s::text AND jsonb_typeof(metadata -> %(field)s::text) <> 'null'
ORDER BY rid
LIMIT 1;
