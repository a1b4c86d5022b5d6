-- The documents after one, of a collection or of all, in the order of their ids; or the one with the id $doc_id.
SELECT doc_id, file_name, collection, mime, chunks, characters, pages_with_text, tags, metadata, size_bytes, checksum, modified_at
FROM sources
WHERE ($doc_id IS NULL OR doc_id = $doc_id)
  AND doc_id > $after
  AND ($collection IS NULL OR collection = $collection)
ORDER BY doc_id
LIMIT $most;
