-- A JSON value as text that is the same for equal values: a whole DOUBLE is written as the integer, nothing is null, a date and
-- its midnight are the date, a time of day has seconds, no zeros behind its fraction, and is in UTC, without an offset. By their
-- text: a cast to TIMESTAMP takes offsets into account in some versions of DuckDB, and not in others.
CREATE OR REPLACE MACRO json_value_key(v) AS
    CASE WHEN json_type(v) = 'DOUBLE'
         THEN CAST(coalesce(
             CASE WHEN CAST(v AS DOUBLE) = trunc(CAST(v AS DOUBLE)) THEN CAST(TRY_CAST(CAST(v AS DOUBLE) AS HUGEINT) AS VARCHAR) END,
             CAST(CAST(v AS DOUBLE) AS VARCHAR)) AS VARCHAR)
         WHEN CAST(v AS VARCHAR) LIKE '"____-__-__T__:__:__"' THEN replace(CAST(v AS VARCHAR), 'T00:00:00"', '"')
         WHEN CAST(v AS VARCHAR) LIKE '"____-__-_____:__%"'
         THEN regexp_replace(regexp_replace(regexp_replace(coalesce(
             -- Minutes less those of the offset, and the seconds as they are; NULL without an offset, or where there is no such day.
             CASE WHEN regexp_matches(CAST(v AS VARCHAR),
                       '^"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]+)?)?[+-][0-9]{2}(:?[0-9]{2})?"$')
                  THEN '"' || strftime(
                           try_strptime(replace(substr(CAST(v AS VARCHAR), 2, 16), 'T', ' '), '%Y-%m-%d %H:%M')
                           - to_minutes(CAST(regexp_extract(substr(CAST(v AS VARCHAR), 18), '[+-]') || '1' AS INTEGER)
                                        * (60 * CAST(regexp_extract(substr(CAST(v AS VARCHAR), 18), '[+-]([0-9]{2})', 1) AS INTEGER)
                                           + CAST('0' || regexp_extract(substr(CAST(v AS VARCHAR), 18), '[+-][0-9]{2}:?([0-9]*)', 1) AS INTEGER))),
                           '%Y-%m-%dT%H:%M')
                       || regexp_extract(substr(CAST(v AS VARCHAR), 18), '^[0-9:.]*') || '"' END,
             CAST(v AS VARCHAR)),
             '^("[0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})Z?"$', '\1T\2:00"'),
             '^("[0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(\.0+|(\.[0-9]*[1-9])0*)?Z?"$', '\1T\2\4"'),
             '^("[0-9]{4}-[0-9]{2}-[0-9]{2})T00:00:00"$', '\1"')
         ELSE coalesce(CAST(v AS VARCHAR), 'null') END;
