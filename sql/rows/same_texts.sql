-- How many of these texts are rows of a collection.
SELECT count(DISTINCT checksum) FROM source_documents WHERE starts_with(doc_id, $prefix) AND checksum IN (SELECT unnest($checksums));
