SELECT doc_id, mime FROM source_documents ORDER BY doc_id;
