-- The MIME types of the documents.
SELECT DISTINCT s.mime FROM source_documents AS s ORDER BY s.mime;
