-- The chunks of the documents in wanted_documents, from the attached database old, without vectors.
SELECT d.node_id, d.text, CAST(d.metadata_ AS VARCHAR) AS metadata_, d.doc_id, d.collection, d.chunk_index, d.i_start, d.i_end,
       d.page, d.heading_path, d.tags, d.checksum, d.shown
FROM old.main.documents AS d SEMI JOIN wanted_documents AS w ON w.doc_id = d.doc_id
ORDER BY d.rid;
