-- Registers the collections of new documents, with the model of the store.
INSERT INTO collections (collection, embed_model, embed_dims, created_at)
SELECT name, m.value, d.value::integer, now() AT TIME ZONE 'UTC'
FROM unnest(%(collections)s::text[]) AS name, embedding_metadata AS m, embedding_metadata AS d
WHERE m.key = 'embedding_model' AND d.key = 'embedding_dimensions'
ORDER BY name
ON CONFLICT DO NOTHING;
