-- Whether a JSON object meets a metadata filter, see conditions_of: numbers compare by value, null equals a missing field. The
-- fields $doc_id and $node_id are those of the chunk, where they are given. The list of one, or DuckDB would take the field
-- out of the object at each mention.
CREATE OR REPLACE MACRO metadata_matches(metadata, wanted, doc_id := NULL, node_id := NULL) AS
    coalesce(list_bool_or(list_transform(
        conditions_of(CAST(wanted AS JSON)),
        lambda alternative: coalesce(list_bool_and(list_transform(
            alternative,
            lambda condition: list_transform(
                [CASE condition.field WHEN '/$doc_id' THEN to_json(doc_id) WHEN '/$node_id' THEN to_json(node_id)
                                      ELSE json_extract(metadata, condition.field) END],
                lambda found: condition_holds(found, condition.operator_name, condition.operand, condition.wanted_keys)
                    <> condition.negated)[1])), true))), false);
