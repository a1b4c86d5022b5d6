-- Remember a source of rows in place of an earlier one of its collection.
DELETE FROM row_sources WHERE collection = $collection;
INSERT INTO row_sources VALUES ($collection, $definition, $definition_hash, $key_type, $watermarks, $updated_at);
