-- The sources of rows, in the order of their collections.
SELECT collection, definition, definition_hash, key_type, watermarks FROM row_sources ORDER BY collection;
