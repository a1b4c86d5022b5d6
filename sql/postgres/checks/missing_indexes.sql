-- Both legs have their indexes; that of vectors a push makes anew, those of words PostgresStore.migrate(url, reindex=True).
SELECT wanted.name
FROM (VALUES ('chunks_embedding'), ('postings_ending'), ('postings_term'), ('postings_word')) AS wanted(name)
WHERE to_regclass(wanted.name) IS NULL AND (wanted.name <> 'chunks_embedding' OR (
    SELECT value::integer <= 2000 FROM embedding_metadata WHERE key = 'embedding_dimensions'))
ORDER BY wanted.name;
