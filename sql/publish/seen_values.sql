-- In how many rows of the collections, of all if NULL, the id, text, title or tags have a text that is also the value of one of the
-- columns $names, or in its list, and the first such row: of each column that has any. A number counts from three digits on, as a
-- number of its own: smaller ones stand in any text.
WITH cells AS (
    SELECT s.doc_id, c.name, json_extract(s.metadata_, '/' || replace(replace(c.name, '~', '~0'), '/', '~1')) AS value,
           concat_ws(chr(10), s.doc_id, s.text, s.metadata_->>'$.title', array_to_string(s.tags, chr(10))) AS shown
    FROM source_documents AS s CROSS JOIN (SELECT unnest(CAST($names AS VARCHAR[])) AS name) AS c
    WHERE starts_with(s.mime, $row)
      AND (CAST($collection AS VARCHAR[]) IS NULL OR list_contains($collection, s.collection))
), parts AS (
    SELECT doc_id, name, shown, unnest(CASE json_type(value) WHEN 'ARRAY' THEN CAST(value AS JSON[]) ELSE [value] END) AS part
    FROM cells
), told AS (
    SELECT doc_id, name, shown, json_type(part) = 'VARCHAR' AS is_text,
           CASE WHEN json_type(part) = 'VARCHAR' THEN trim(part->>'$') ELSE regexp_replace(part->>'$', '\.0$', '') END AS value
    FROM parts
    WHERE json_type(part) NOT IN ('NULL', 'BOOLEAN', 'OBJECT', 'ARRAY')
)
SELECT name, count(DISTINCT doc_id) AS rows, min(doc_id) AS first_row
FROM told
WHERE value <> '' AND contains(shown, value)
      AND (is_text OR (regexp_matches(value, '([0-9][^0-9]*){3}')
                       AND regexp_matches(shown, '(^|[^0-9.,])' || regexp_escape(value) || '($|[^0-9])')))
GROUP BY name
ORDER BY name;
