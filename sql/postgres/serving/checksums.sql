-- The checksums of documents that have one.
SELECT doc_id, checksum FROM documents WHERE doc_id = ANY(%(doc_ids)s::text[]) AND checksum <> '' ORDER BY doc_id;
