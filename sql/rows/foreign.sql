-- Documents whose ids are those of rows, and that no source of rows has made.
SELECT doc_id FROM source_documents WHERE starts_with(doc_id, $prefix) AND doc_id NOT IN (SELECT doc_id FROM row_values);
