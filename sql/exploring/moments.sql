-- The dates and times in the column given, whatever its type, as timestamps; NULL where there is none. A time is that which is
-- written in a text: versions of DuckDB differ in what they make of a zone behind it.
SELECT *, TRY_CAST(regexp_replace(CAST(given AS VARCHAR), '(:\d\d(?:\.\d+)?) ?(?:Z|[+-]\d\d(?::?\d\d)?)$', '\1') AS TIMESTAMP) AS moment
FROM given_rows AS r;
