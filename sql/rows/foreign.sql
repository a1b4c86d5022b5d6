-- Documents whose ids are those of rows, and that are none.
SELECT doc_id FROM source_documents WHERE starts_with(doc_id, $prefix) AND NOT starts_with(mime, $row);
