-- What did the builds, updates and deletions do all together?
SELECT collection, kind, runs, documents, chunks, embedded, reused, failed, texts_per_second
FROM ingest_summary
ORDER BY collection, kind
LIMIT 20;
