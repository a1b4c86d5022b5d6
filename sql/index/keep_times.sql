-- Documents keep the time at which they were written to the attached database old.
UPDATE source_documents SET created_at = o.created_at FROM old.main.source_documents AS o WHERE o.doc_id = source_documents.doc_id;
