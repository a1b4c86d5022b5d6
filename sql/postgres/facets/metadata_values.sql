-- The metadata fields by kind of value with how many chunks have each, the bounds of numbers and the commonest short values, of lists
-- those in them, as JSON with how many chunks have each; a field without any has one row.
WITH typed AS (
    SELECT f.key COLLATE "C" AS name, f.value, jsonb_typeof(f.value) AS kind
    FROM chunks AS c, jsonb_each(c.metadata) AS f
    WHERE f.key NOT IN ('file_name', 'file_path', 'mime', 'truncated')
      AND jsonb_typeof(f.value) IN ('string', 'number', 'boolean', 'array')
), fields AS (
    SELECT name, kind, count(*) AS chunks,
           min(CASE WHEN kind = 'number' THEN CAST(value AS double precision) END) AS least,
           max(CASE WHEN kind = 'number' THEN CAST(value AS double precision) END) AS greatest
    FROM typed
    GROUP BY name, kind
), single AS (
    SELECT name, kind, CAST(value AS text) COLLATE "C" AS value FROM typed WHERE kind <> 'array'
    UNION ALL
    SELECT t.name, t.kind, CAST(e.value AS text) COLLATE "C"
    FROM typed AS t, LATERAL (SELECT DISTINCT a.value FROM jsonb_array_elements(t.value) AS a) AS e
    WHERE t.kind = 'array'
), found AS (
    SELECT name, kind, value, count(*) AS chunks, row_number() OVER (PARTITION BY name, kind ORDER BY count(*) DESC, value) AS place
    FROM single
    WHERE length(value) <= 100
    GROUP BY name, kind, value
)
SELECT f.name, f.kind, f.chunks, f.least, f.greatest, coalesce(v.place, 1) AS place, v.value, v.chunks AS chunks_with_value
FROM fields AS f LEFT JOIN found AS v ON v.name = f.name AND v.kind = f.kind AND v.place <= %(most)s
ORDER BY f.chunks DESC, f.name, f.kind, place;
