-- The metadata of a chunk without the two fields by which llama-index opens the row.
CREATE OR REPLACE MACRO public_metadata(metadata) AS
    json_merge_patch(CAST(metadata AS JSON), '{"_node_content": null, "_node_type": null}');
