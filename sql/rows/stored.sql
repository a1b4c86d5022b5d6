-- The rows that the file has of a source: the checksum of the text, NULL where it has to be written again, and the hash of the columns.
SELECT v.doc_id, CASE WHEN s.mime = $mime AND v.doc_id NOT IN (FROM missing) THEN s.checksum END AS checksum, v.row_hash
FROM row_values AS v JOIN source_documents AS s ON s.doc_id = v.doc_id;
