-- The checksums of documents that have one.
SELECT doc_id, checksum FROM source_documents WHERE doc_id IN (SELECT unnest($doc_ids)) AND checksum <> '' ORDER BY doc_id;
