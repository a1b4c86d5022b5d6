-- Sets keys of embedding_metadata.
INSERT INTO embedding_metadata (key, value, created_at)
SELECT key, value, now() AT TIME ZONE 'UTC' FROM unnest(%(keys)s::text[], %(values)s::text[]) AS given(key, value)
ORDER BY key
ON CONFLICT (key) DO UPDATE SET value = excluded.value, created_at = excluded.created_at;
