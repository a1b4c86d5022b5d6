-- The columns from which the links of these documents are extracted.
SELECT doc_id, text, body_start, collection, mime
FROM source_documents
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id;
