-- The runs of letters and digits of a text, as condition_holds of a DuckDB file has them. This one is run by DuckDB.
SELECT regexp_extract_all($1, '[\pL\pN]+');
