-- The conditions of a metadata filter, as a list of alternatives that are lists of conditions. {"year": 2024} asks for being
-- equal, {"year": {"$gte": 2020, "$not": {"$in": [2022]}}} for comparisons, see condition_holds. {"$or": […]} is a list of such
-- objects, one of which has to hold, {"$and": […]} one of which all have to hold, also inside $or. A filter that is no object
-- holds nowhere. (Python takes them nested as you like, and writes them in this form.)
CREATE OR REPLACE MACRO conditions_of(wanted) AS
    list_transform(
        CAST(CASE WHEN json_type(wanted) <> 'OBJECT' THEN [] WHEN NOT json_exists(wanted, '/$or') THEN [wanted]
             WHEN json_array_length(json_keys(wanted)) = 1 THEN json_extract(wanted, '$."$or"[*]')
             ELSE error('$or has to stand alone in a filter: ' || wanted) END AS JSON[]),
        lambda alternative: flatten(list_transform(
            CAST(CASE WHEN NOT json_exists(alternative, '/$and') THEN [alternative]
                 WHEN json_array_length(json_keys(alternative)) = 1 THEN json_extract(alternative, '$."$and"[*]')
                 ELSE error('$and has to stand alone in an object: ' || alternative) END AS JSON[]),
            lambda part: flatten(list_transform(
                list_transform(json_keys(part), lambda name: '/' || replace(replace(name, '~', '~0'), '/', '~1')),
                lambda place: list_transform(
                    CASE WHEN starts_with(json_keys(part, place)[1], '$') THEN json_keys(part, place) ELSE [''] END,
                    lambda sign: {
                        'field': CASE WHEN regexp_full_match(place, '/\$[A-Za-z_]+') AND place NOT IN ('/$doc_id', '/$node_id')
                                      THEN error('A metadata filter cannot have ' || place[2:] || ' here.') ELSE place END,
                        'negated': sign IN ('$not', '$ne', '$nin'),
                        'operator': CASE sign WHEN '' THEN '$eq' WHEN '$ne' THEN '$eq' WHEN '$nin' THEN '$in'
                                         WHEN '$not' THEN json_keys(part, place || '/$not')[1] ELSE sign END,
                        'operand': json_extract(part, place || CASE WHEN sign = '' THEN '' ELSE '/' || sign END
                            || CASE WHEN sign = '$not' THEN '/' || json_keys(part, place || '/$not')[1] ELSE '' END)}))))));
