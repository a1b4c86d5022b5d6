-- How many documents, of some collections or all, have values in a metadata field that no operand of a $kind is compared with ('number',
-- 'date' for ISO 8601, 'text' for any other text), and the first of them.
SELECT count(DISTINCT doc_id), arg_min(value ->> '$', rid)
FROM (SELECT rid, doc_id, json_extract(metadata_, '/' || replace(replace($field, '~', '~0'), '/', '~1')) AS value FROM documents
      WHERE $collection IS NULL OR list_contains($collection, collection))
WHERE CASE WHEN json_type(value) = 'VARCHAR'
           THEN trim(value ->> '$') <> ''
                AND $kind <> CASE WHEN regexp_full_match(value ->> '$', '[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?')
                                  THEN 'date' ELSE 'text' END
           ELSE $kind <> 'number' AND json_type(value) IN ('UBIGINT', 'BIGINT', 'HUGEINT', 'UHUGEINT', 'DOUBLE') END
HAVING count(*) > 0;
