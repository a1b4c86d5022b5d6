-- Removes columns of rows of tables: $columns is an object of JSON with a null for each. A chunk may hold them twice, the
-- second time in the node of llama-index.
UPDATE documents AS d SET
    metadata_ = json_merge_patch(
        d.metadata_,
        CAST($columns AS JSON),
        CASE WHEN d.metadata_->>'_node_content' IS NULL THEN '{}' ELSE json_object('_node_content', CAST(json_merge_patch(
            CAST(d.metadata_->>'_node_content' AS JSON), json_object('metadata', CAST($columns AS JSON))) AS VARCHAR)) END)
FROM source_documents AS s
WHERE s.doc_id = d.doc_id AND starts_with(s.mime, $row);
UPDATE source_documents SET metadata_ = json_merge_patch(metadata_, CAST($columns AS JSON))
WHERE starts_with(mime, $row);
