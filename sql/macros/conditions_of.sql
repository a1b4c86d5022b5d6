-- The conditions of a metadata filter, as a list of alternatives that are lists of conditions. {"year": 2024} asks for being
-- equal, {"year": {"$gte": 2020, "$not": {"$in": [2022]}}} for comparisons, see condition_holds. {"$or": […]} is a list of such
-- objects, one of which has to hold, {"$and": […]} one of which all have to hold, also inside $or. A filter that is no object
-- holds nowhere. (Python takes them nested as you like, and writes them in this form.) What is wrong becomes an operator that
-- there is not, on which condition_holds fails; error() here would keep DuckDB from working this out once for all rows.
CREATE OR REPLACE MACRO conditions_of(wanted) AS
    list_transform(
        CAST(CASE WHEN json_type(wanted) <> 'OBJECT' THEN [] WHEN NOT json_exists(wanted, '/$or') THEN [wanted]
             WHEN length(json_keys(wanted)) = 1 THEN json_extract(wanted, '$."$or"[*]')
             ELSE ['{"": {"$or beside other fields": 0}}'] END AS JSON[]),
        lambda alternative: flatten(list_transform(
            CAST(CASE WHEN NOT json_exists(alternative, '/$and') THEN [alternative]
                 WHEN length(json_keys(alternative)) = 1 THEN json_extract(alternative, '$."$and"[*]')
                 ELSE ['{"": {"$and beside other fields": 0}}'] END AS JSON[]),
            lambda part: flatten(list_transform(
                list_transform(json_keys(part), lambda name: '/' || replace(replace(name, '~', '~0'), '/', '~1')),
                lambda place: list_transform(list_transform(
                    CASE WHEN starts_with(json_keys(part, place)[1], '$') THEN json_keys(part, place) ELSE [''] END,
                    lambda sign: {
                        'field': place,
                        'negated': sign IN ('$not', '$ne', '$nin'),
                        'operator_name': CASE
                            WHEN regexp_full_match(place, '/\$[A-Za-z_]+') AND place <> '/$doc_id' AND place <> '/$node_id' THEN place[2:] || ' here'
                            WHEN sign IN ('', '$ne') THEN '$eq' WHEN sign = '$nin' THEN '$in'
                            WHEN sign <> '$not' THEN sign
                            WHEN length(json_keys(part, place || '/$not')) = 1 THEN json_keys(part, place || '/$not')[1]
                            ELSE '$not of several' END,
                        'operand': json_extract(part, place || CASE WHEN sign = '' THEN '' ELSE '/' || sign END
                            || CASE WHEN sign = '$not' THEN '/' || json_keys(part, place || '/$not')[1] ELSE '' END)}),
                    lambda c: {'field': c.field, 'negated': c.negated, 'operator_name': c.operator_name, 'operand': c.operand,
                        'wanted_keys': list_transform(
                            CAST(CASE WHEN c.operator_name IN ('$in', '$any', '$all') THEN json_extract(c.operand, '$[*]')
                                      ELSE [c.operand] END AS JSON[]),
                            lambda wanted_value: json_value_key(wanted_value))}))))));
