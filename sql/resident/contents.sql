-- What results show of every chunk; see also chunk_rows in Python.
SELECT d.rid, d.text, public_metadata(d.metadata_) AS metadata, d.collection, d.heading_path, d.page, d.i_start, d.i_end, d.tags,
       d.shown, d.checksum, s.created_at
FROM documents AS d LEFT JOIN source_documents AS s ON s.doc_id = d.doc_id;
