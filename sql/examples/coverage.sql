-- Of which documents is the least in the chunks?
SELECT doc_id, chunks, characters, covered, coverage
FROM document_coverage
ORDER BY coverage, doc_id
LIMIT 10;
