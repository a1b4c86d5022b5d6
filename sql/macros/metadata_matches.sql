-- Whether the top-level fields of a JSON object equal those of another; numbers by value, null also where missing.
-- A filter that is no object matches nothing. Two whole numbers are compared as they are written: a DOUBLE is exact to 2^53 only.
CREATE OR REPLACE MACRO metadata_matches(metadata, wanted) AS
    coalesce(list_bool_and(list_transform(
        list_transform(json_keys(wanted), lambda key: '/' || replace(replace(key, '~', '~0'), '/', '~1')),
        lambda field:
            CASE WHEN json_type(metadata, field) IN ('BIGINT', 'UBIGINT', 'DOUBLE')
                  AND json_type(wanted, field) IN ('BIGINT', 'UBIGINT', 'DOUBLE')
                  AND 'DOUBLE' IN (json_type(metadata, field), json_type(wanted, field))
                 THEN CAST(json_extract(metadata, field) AS DOUBLE) = CAST(json_extract(wanted, field) AS DOUBLE)
                 ELSE coalesce(json_extract(metadata, field), 'null') = json_extract(wanted, field) END)), json_type(wanted) = 'OBJECT');
