-- The documents with one of these hashes.
SELECT doc_id FROM source_documents WHERE hash(doc_id) IN (SELECT unnest(CAST($hashes AS UBIGINT[]))) ORDER BY doc_id;
