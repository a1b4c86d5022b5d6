-- Whether a JSON value (NULL: there is none) meets a condition: $eq, $in (equal to one of a list, or a
-- list that holds one), $contains (a list that holds the
-- value), $any and $all (a list that holds one, or all, of a list), $gt, $gte, $lt, $lte (numbers with numbers, text with text,
-- by code points, dates and times as json_value_key has them and with no other text that has a letter or digit), $text_match and $text_match_insensitive (text that has the operand in it), $exists (there, and not null)
-- and $empty (nothing, null, "" or []). wanted_keys are the json_value_key of the operand, or of each of its values.
CREATE OR REPLACE MACRO condition_holds(found, operator_name, operand, wanted_keys) AS
    CASE
        WHEN operator_name IN ('$eq', '$in') AND list_contains(wanted_keys, json_value_key(found)) THEN true
        WHEN operator_name = '$eq' THEN false
        WHEN operator_name IN ('$in', '$contains', '$any')
        THEN coalesce(list_has_any(list_transform(CAST(json_extract(found, '$[*]') AS JSON[]), lambda element: json_value_key(element)), wanted_keys), false)
        WHEN operator_name = '$all'
        THEN coalesce(list_has_all(list_transform(CAST(json_extract(found, '$[*]') AS JSON[]), lambda element: json_value_key(element)), wanted_keys), false)
        WHEN operator_name IN ('$gt', '$gte', '$lt', '$lte') THEN coalesce(list_contains(
            CASE operator_name WHEN '$gt' THEN [1] WHEN '$gte' THEN [0, 1] WHEN '$lt' THEN [-1] ELSE [-1, 0] END,
            CASE WHEN json_type(found) IN ('BIGINT', 'UBIGINT') AND json_type(operand) IN ('BIGINT', 'UBIGINT')
                 THEN sign(CAST(found AS HUGEINT) - CAST(operand AS HUGEINT))
                 WHEN json_type(found) IN ('BIGINT', 'UBIGINT', 'DOUBLE') AND json_type(operand) IN ('BIGINT', 'UBIGINT', 'DOUBLE')
                 THEN sign(CAST(found AS DOUBLE) - CAST(operand AS DOUBLE))
                 WHEN json_type(found) = 'VARCHAR' AND json_type(operand) = 'VARCHAR' AND (
                     NOT regexp_matches((found ->> '$') || chr(10) || (operand ->> '$'), '(?m)^[0-9]{4}-[0-9]{2}-[0-9]{2}([T ][0-9]{2}:[0-9]{2}.*)?$')
                     OR (regexp_full_match(found ->> '$', '[0-9]{4}(-[0-9]{2}(-[0-9]{2}([T ].*)?)?)?|[^\pL\pN]*')
                         AND regexp_full_match(operand ->> '$', '[0-9]{4}(-[0-9]{2}(-[0-9]{2}([T ].*)?)?)?|[^\pL\pN]*')))
                 THEN list_transform(
                     [{'it': CAST(json_value_key(found) AS JSON) ->> '$', 'other': CAST(wanted_keys[1] AS JSON) ->> '$'}],
                     lambda compared: CASE WHEN compared.it > compared.other THEN 1 WHEN compared.it < compared.other THEN -1 ELSE 0 END)[1]
            END), false)
        WHEN operator_name = '$text_match' THEN coalesce(json_type(found) = 'VARCHAR' AND contains(found ->> '$', operand ->> '$'), false)
        WHEN operator_name = '$text_match_insensitive'
        THEN coalesce(json_type(found) = 'VARCHAR' AND contains(lower(found ->> '$'), lower(operand ->> '$')), false)
        WHEN operator_name = '$exists' THEN (coalesce(json_type(found), 'NULL') <> 'NULL') = CAST(operand AS BOOLEAN)
        WHEN operator_name = '$empty' THEN (coalesce(CAST(found AS VARCHAR), 'null') IN ('null', '""', '[]')) = CAST(operand AS BOOLEAN)
        ELSE error('A metadata filter has no operator ' || operator_name || '.')
    END;
