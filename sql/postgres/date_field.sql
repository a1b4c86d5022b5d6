-- The least of the texts of a metadata field, in some collections or all, where all of them are ISO 8601 dates.
SELECT min(value COLLATE "C")
FROM (SELECT metadata ->> %(field)s::text AS value FROM chunks 
      WHERE jsonb_typeof(metadata -> %(field)s::text) = 'string' AND (%(collection)s::text[] IS NULL OR collection = ANY(%(collection)s::text[]))) AS texts
HAVING bool_and(value ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}[^\n]*)?$');
