-- The index of words has its indexes: PostgresStore.migrate(url, reindex=True) makes them.
SELECT wanted.name
FROM (VALUES ('postings_ending'), ('postings_term'), ('postings_word')) AS wanted(name)
WHERE to_regclass(wanted.name) IS NULL
ORDER BY wanted.name;
