-- Each of the texts with the texts of a metadata field, in some collections or all, that equal it but for case and blanks, or all where they are few; of lists those in them.
WITH fields AS (
    SELECT metadata -> %(field)s::text AS value
    FROM chunks
    WHERE metadata ? %(field)s::text AND (%(collection)s::text[] IS NULL OR collection = ANY(%(collection)s::text[]))
), found AS (
    SELECT DISTINCT e.value #>> '{}' AS value
    FROM fields AS f,
         LATERAL jsonb_array_elements(CASE jsonb_typeof(f.value) WHEN 'array' THEN f.value ELSE jsonb_build_array(f.value) END) AS e
    WHERE jsonb_typeof(e.value) = 'string'
)
SELECT t.text, f.value
FROM unnest(%(texts)s::text[]) AS t(text)
JOIN found AS f
  ON lower(trim(regexp_replace(f.value, '\s+', ' ', 'g'))) = lower(trim(regexp_replace(t.text, '\s+', ' ', 'g')))
  OR (SELECT count(*) FROM found) <= %(few)s
ORDER BY t.text COLLATE "C", f.value COLLATE "C"
LIMIT %(most)s;
