-- The rows that the file has of a source: the checksum of the text, NULL where it has to be written again, and the hash of the
-- columns, NULL where their values are missing.
SELECT s.doc_id, CASE WHEN s.mime = $mime AND s.doc_id NOT IN (FROM missing) THEN s.checksum END AS checksum, v.row_hash
FROM source_documents AS s LEFT JOIN row_values AS v ON v.doc_id = s.doc_id
WHERE starts_with(s.doc_id, $prefix) AND starts_with(s.mime, $row);
