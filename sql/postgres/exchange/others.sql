-- The documents of some collections, or of all, that are not to be kept.
SELECT doc_id
FROM documents
WHERE (%(collections)s::text[] IS NULL OR collection = ANY(%(collections)s::text[]))
  AND NOT EXISTS (SELECT FROM unnest(%(keep)s::text[]) AS kept(doc_id) WHERE kept.doc_id = documents.doc_id)
ORDER BY doc_id;
