-- What is in a document? Put a doc_id of your own in place of the first.
SELECT repeat('  ', level - 1) || heading AS outline, first_chunk, chunks
FROM headings
WHERE doc_id = (SELECT min(doc_id) FROM headings)
ORDER BY chunk_index, level, heading_path
LIMIT 30;
