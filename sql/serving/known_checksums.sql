-- Those of $checksums that documents have.
SELECT DISTINCT checksum FROM source_documents WHERE checksum IN (SELECT unnest($checksums)) ORDER BY checksum;
