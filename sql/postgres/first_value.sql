-- A metadata field in the first chunk, of some collections or all, that has it and not null.
SELECT metadata -> %(field)s::text
FROM chunks
WHERE metadata ? %(field)s::text AND jsonb_typeof(metadata -> %(field)s::text) <> 'null'
      AND (%(collection)s::text[] IS NULL OR collection = ANY(%(collection)s::text[]))
ORDER BY rid
LIMIT 1;
