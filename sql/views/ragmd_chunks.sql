-- The chunks as export_ragmd writes them, in the order of their vectors.
CREATE OR REPLACE VIEW ragmd_chunks AS
SELECT row_number() OVER (ORDER BY doc_id, chunk_index) - 1 AS faiss_id, doc_id AS document_id,
       CASE WHEN json_type(metadata_, '$.chunk_key') = 'VARCHAR' THEN json_extract_string(metadata_, '$.chunk_key')
            ELSE 'chunk-' || chunk_index END AS chunk_key,
       i_start, i_end, page, heading_path, tags, text
FROM documents
ORDER BY doc_id, chunk_index;
