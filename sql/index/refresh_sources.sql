-- The path and time of documents whose content has not changed.
UPDATE source_documents AS s SET file_path = n.file_path, modified_at = n.modified_at
FROM seen_sources AS n WHERE n.doc_id = s.doc_id;
