-- The metadata of a chunk without the fields that llama-index keeps for itself.
CREATE OR REPLACE MACRO public_metadata(metadata) AS
    json_merge_patch(CAST(metadata AS JSON), '{"_node_content": null, "_node_type": null, "document_id": null, "ref_doc_id": null, "doc_id": null}');
