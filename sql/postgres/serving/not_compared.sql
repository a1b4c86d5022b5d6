-- How many documents, of some collections or all, have values in a metadata field that no operand of a kind is compared with ('number',
-- 'date' for ISO 8601, 'text' for any other text), and the first of them.
SELECT count(DISTINCT doc_id), (array_agg(value #>> '{}' ORDER BY doc_id COLLATE "C", chunk_index))[1]
FROM (SELECT doc_id, chunk_index, metadata -> %(field)s::text AS value FROM chunks
      WHERE metadata ? %(field)s::text AND (%(collection)s::text[] IS NULL OR collection = ANY(%(collection)s::text[]))) AS fields
WHERE CASE jsonb_typeof(value)
      WHEN 'string' THEN trim(value #>> '{}') <> ''
           AND %(kind)s::text <> CASE
               WHEN value #>> '{}' ~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}[^\n]*)?$' THEN 'date' ELSE 'text' END
      WHEN 'number' THEN %(kind)s::text <> 'number'
      ELSE false END
HAVING count(*) > 0;
