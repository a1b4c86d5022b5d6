-- Those of the documents $doc_ids of which the file has any rows.
SELECT doc_id
FROM (SELECT doc_id FROM source_documents UNION SELECT doc_id FROM documents)
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id;
