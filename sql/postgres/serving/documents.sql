-- The documents after one, of a collection or of all, in the order of their ids; or the one with an id.
SELECT d.doc_id, d.file_name, d.collection, d.mime, (SELECT count(*) FROM chunks AS c WHERE c.doc_id = d.doc_id) AS chunks,
       length(d.text) AS characters,
       (SELECT count(DISTINCT c.page) FROM chunks AS c WHERE c.doc_id = d.doc_id) AS pages_with_text,
       d.tags, d.metadata_::text AS metadata, d.size_bytes, d.checksum, d.modified_at
FROM documents AS d
WHERE (%(doc_id)s::text IS NULL OR d.doc_id = %(doc_id)s::text)
  AND d.doc_id > %(after)s
  AND (%(collection)s::text IS NULL OR d.collection = %(collection)s::text)
ORDER BY d.doc_id
LIMIT %(most)s;
