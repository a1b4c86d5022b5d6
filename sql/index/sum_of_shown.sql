-- What is shown of all chunks, and where the documents end for a reader, in two numbers.
SELECT (SELECT sum(hash(rid, shown)) FROM documents), (SELECT sum(hash(doc_id, shown_end)) FROM source_documents);
