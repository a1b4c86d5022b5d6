-- The chunks for reading: no vectors, headings as one string, metadata without machine fields.
CREATE OR REPLACE VIEW chunks AS
SELECT d.node_id, d.text, d.doc_id, s.file_name, d.collection, d.chunk_index,
       coalesce(array_to_string(d.heading_path, ' > '), '') AS heading, -- DuckDB 1.3 makes NULL of an empty list
       d.page, d.tags, public_metadata(d.metadata_) AS metadata, d.i_start, d.i_end, length(d.text) AS characters,
       d.checksum, s.mime, s.created_at, visible(d.text, d.shown) AS visible
FROM documents AS d LEFT JOIN source_documents AS s ON s.doc_id = d.doc_id
ORDER BY d.doc_id, d.chunk_index;
