-- A JSON value as text that is the same for equal values: a whole DOUBLE is written as the integer, nothing is null.
CREATE OR REPLACE MACRO json_value_key(v) AS
    CASE WHEN json_type(v) = 'DOUBLE'
         THEN CAST(coalesce(
             CASE WHEN CAST(v AS DOUBLE) = trunc(CAST(v AS DOUBLE)) THEN CAST(TRY_CAST(CAST(v AS DOUBLE) AS HUGEINT) AS VARCHAR) END,
             CAST(CAST(v AS DOUBLE) AS VARCHAR)) AS VARCHAR)
         ELSE coalesce(CAST(v AS VARCHAR), 'null') END;
