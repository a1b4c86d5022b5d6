-- The metadata fields by kind of value (string, number, boolean, array) with how many chunks have each, the bounds of numbers and the $most
-- commonest values of at most 100 characters, of lists those in them, as JSON with how many chunks have each; a field without any has one row.
WITH cells AS (
    SELECT name, json_extract(metadata_, '/' || replace(replace(name, '~', '~0'), '/', '~1')) AS value
    FROM (SELECT metadata_, unnest(json_keys(public_metadata(metadata_))) AS name FROM documents)
    WHERE name NOT IN ('file_name', 'file_path', 'mime', 'truncated')
), typed AS (
    SELECT name, value,
           CASE json_type(value) WHEN 'VARCHAR' THEN 'string' WHEN 'BOOLEAN' THEN 'boolean' WHEN 'ARRAY' THEN 'array'
                                 WHEN 'OBJECT' THEN NULL WHEN 'NULL' THEN NULL ELSE 'number' END AS kind
    FROM cells
), fields AS (
    SELECT name, kind, count(*) AS chunks,
           min(CASE WHEN kind = 'number' THEN TRY_CAST(value AS DOUBLE) END) AS least,
           max(CASE WHEN kind = 'number' THEN TRY_CAST(value AS DOUBLE) END) AS greatest
    FROM typed
    WHERE kind IS NOT NULL
    GROUP BY name, kind
), found AS (
    SELECT name, kind, value, count(*) AS chunks, row_number() OVER (PARTITION BY name, kind ORDER BY count(*) DESC, value) AS place
    FROM (SELECT name, kind, CAST(unnest(CASE WHEN kind = 'array' THEN list_distinct(CAST(value AS JSON[])) ELSE [value] END) AS VARCHAR) AS value
          FROM typed WHERE kind IS NOT NULL)
    WHERE length(value) <= 100
    GROUP BY name, kind, value
)
SELECT f.name, f.kind, f.chunks, f.least, f.greatest, coalesce(v.place, 1) AS place, v.value, v.chunks AS chunks_with_value
FROM fields AS f LEFT JOIN found AS v ON v.name = f.name AND v.kind = f.kind AND v.place <= $most
ORDER BY f.chunks DESC, f.name, f.kind, place;
