-- Whether a metadata field is an ISO 8601 date in some document of a collection; place is a JSON pointer.
SELECT EXISTS (
    FROM source_documents
    WHERE collection = $collection AND json_type(metadata_, $place) = 'VARCHAR'
      AND regexp_full_match(json_extract_string(metadata_, $place), '[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?'));
