-- Both legs have their index; a push that was ended may have left one out: run it again.
SELECT wanted.name
FROM (VALUES ('chunks_embedding'), ('chunks_lexemes')) AS wanted(name)
WHERE to_regclass(wanted.name) IS NULL AND (wanted.name <> 'chunks_embedding' OR (
    SELECT value::integer <= 2000 FROM embedding_metadata WHERE key = 'embedding_dimensions'))
ORDER BY wanted.name;
