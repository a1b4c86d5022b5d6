-- The digests of documents that a push has written.
SELECT doc_id, digest FROM documents WHERE doc_id = ANY(%(doc_ids)s::text[]) AND digest IS NOT NULL ORDER BY doc_id;
