-- Both legs have their indexes, that of vectors in a large store: PostgresStore.migrate(url, reindex=True) makes them.
SELECT wanted.name
FROM (VALUES ('chunks_embedding'), ('postings_ending'), ('postings_term'), ('postings_word')) AS wanted(name)
WHERE to_regclass(wanted.name) IS NULL AND (wanted.name <> 'chunks_embedding' OR (
    SELECT value::integer <= %(most_dimensions)s AND (SELECT count(*) FROM chunks) >= %(graph_from)s
    FROM embedding_metadata WHERE key = 'embedding_dimensions'))
ORDER BY wanted.name;
