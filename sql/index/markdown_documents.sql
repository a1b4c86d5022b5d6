SELECT doc_id FROM source_documents WHERE mime = $mime ORDER BY doc_id;
