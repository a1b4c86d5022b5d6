-- The metadata of a chunk without the two fields of llama-index.
CREATE OR REPLACE MACRO public_metadata(metadata) AS
    json_merge_patch(CAST(metadata AS JSON), '{"_node_content": null, "_node_type": null}');
