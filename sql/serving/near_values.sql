-- Each of $texts with the texts of a metadata field, in some collections or all, that equal it but for case and blanks, or all where they are few; of lists those in them.
WITH items AS (
    SELECT unnest(CASE json_type(value) WHEN 'ARRAY' THEN json_extract(value, '$[*]') ELSE [value] END) AS item
    FROM (SELECT json_extract(metadata_, '/' || replace(replace($field, '~', '~0'), '/', '~1')) AS value FROM documents
          WHERE $collection IS NULL OR list_contains($collection, collection))
), found AS (
    SELECT DISTINCT item ->> '$' AS value
    FROM items
    WHERE json_type(item) = 'VARCHAR'
)
SELECT t.text, f.value
FROM (SELECT unnest($texts) AS text) AS t
JOIN found AS f
  ON lower(trim(regexp_replace(f.value, '\s+', ' ', 'g'))) = lower(trim(regexp_replace(t.text, '\s+', ' ', 'g')))
  OR (SELECT count(*) FROM found) <= $few
ORDER BY t.text, f.value
LIMIT $most;
