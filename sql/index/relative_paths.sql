-- Documents that were read from one of the folders $roots get their path below it: the folder stands in collections.
UPDATE source_documents AS s SET file_path = n.name
FROM (
    SELECT doc_id, CASE WHEN collection = 'default' THEN doc_id ELSE doc_id[length(collection) + 2:] END AS name
    FROM source_documents
) AS n
WHERE n.doc_id = s.doc_id AND s.collection = $collection AND CASE WHEN s.chunk_policy IS NULL THEN s.checksum <> '' ELSE s.modified_at IS NOT NULL END
    AND list_contains(list_transform(CAST($roots AS VARCHAR[]), lambda root: rtrim(root, '/') || '/' || n.name), s.file_path);
