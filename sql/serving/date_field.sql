-- The least of the texts of a metadata field, in some collections or all, where all of them are ISO 8601 dates; place is a JSON pointer.
SELECT min(value)
FROM (SELECT json_extract_string(metadata_, $place) AS value FROM documents
      WHERE json_type(metadata_, $place) = 'VARCHAR' AND ($collection IS NULL OR list_contains($collection, collection)))
HAVING bool_and(regexp_full_match(value, '[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?'));
