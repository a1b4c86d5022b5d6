-- How many documents, of some collections or all, have values in a metadata field that no number is compared with (with dates: no ISO 8601
-- date), and the first of them.
SELECT count(DISTINCT doc_id), (array_agg(value #>> '{}' ORDER BY doc_id COLLATE "C", chunk_index))[1]
FROM (SELECT doc_id, chunk_index, metadata -> %(field)s::text AS value FROM chunks
      WHERE metadata ? %(field)s::text AND (%(collection)s::text[] IS NULL OR collection = ANY(%(collection)s::text[]))) AS fields
WHERE CASE jsonb_typeof(value)
      WHEN 'string' THEN trim(value #>> '{}') <> ''
           AND NOT (%(dates)s AND value #>> '{}' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}[^\n]*)?$')
      WHEN 'number' THEN %(dates)s
      ELSE false END
HAVING count(*) > 0;
