-- The length of most of the vectors; where there are none, that of embedding_metadata.
SELECT coalesce(
    (SELECT length(CAST(embedding AS FLOAT[])) AS dimensions FROM documents WHERE embedding IS NOT NULL GROUP BY dimensions
     ORDER BY count(*) DESC, dimensions DESC LIMIT 1),
    (SELECT TRY_CAST(value AS INTEGER) FROM embedding_metadata WHERE key = 'embedding_dimensions'));
