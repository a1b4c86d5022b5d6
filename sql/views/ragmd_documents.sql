-- The documents as export_ragmd writes them, except their chunks, which are in ragmd_chunks.
CREATE OR REPLACE VIEW ragmd_documents AS
SELECT s.doc_id AS id, s.file_path AS source, coalesce(c.chunks, 0) AS chunks, s.metadata_ AS metadata, s.text AS full_text,
       s.collection, s.tags, s.mime, s.checksum
FROM source_documents AS s
LEFT JOIN (SELECT doc_id, count(*) AS chunks FROM documents GROUP BY doc_id) AS c ON c.doc_id = s.doc_id
ORDER BY s.doc_id;
