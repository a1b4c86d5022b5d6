-- One row per source document, with its chunks.
CREATE OR REPLACE VIEW sources AS
SELECT s.doc_id, s.file_name, s.file_path, s.collection, s.mime, coalesce(c.chunks, 0) AS chunks,
       length(s.text) AS characters, coalesce(c.pages, 0) AS pages_with_text, s.tags, s.metadata_ AS metadata, s.size_bytes,
       s.checksum, s.modified_at, s.created_at
FROM source_documents AS s
LEFT JOIN (SELECT doc_id, count(*) AS chunks, count(DISTINCT page) AS pages FROM documents GROUP BY doc_id) AS c
    ON c.doc_id = s.doc_id
ORDER BY s.doc_id;
