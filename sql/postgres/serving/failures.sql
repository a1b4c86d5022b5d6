-- None: a store in Postgres is filled from files, which keep what failed.
SELECT doc_id, '' AS status, '' AS reason, created_at AS failed_at
FROM documents
WHERE false AND doc_id > %(after)s
ORDER BY doc_id
LIMIT %(most)s;
