-- Those of the documents $doc_ids that the file has anything of.
SELECT doc_id
FROM (SELECT doc_id FROM source_documents UNION SELECT doc_id FROM documents)
WHERE doc_id IN (SELECT unnest($doc_ids))
ORDER BY doc_id;
