-- The whole documents that chunks (a list of node_id) come from, each once.
CREATE OR REPLACE MACRO source_documents_of(chunk_ids) AS TABLE
    SELECT s.doc_id, s.file_path, s.file_name, s.text, s.metadata_, s.collection, s.mime, s.checksum, s.tags, s.created_at
    FROM source_documents AS s
    WHERE s.doc_id IN (SELECT d.doc_id FROM documents AS d WHERE d.node_id IN (SELECT unnest(chunk_ids)))
    ORDER BY s.doc_id;
