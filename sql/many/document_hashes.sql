-- A hash of each document's id.
SELECT hash(doc_id) AS hash FROM source_documents;
