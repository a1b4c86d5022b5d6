-- One row per source of rows: where they are read from and how, what it was at the last run, and up to where a column had been read.
CREATE TABLE IF NOT EXISTS row_sources (
    collection VARCHAR,
    definition JSON,
    definition_hash VARCHAR,
    key_type VARCHAR,
    watermarks JSON,
    updated_at TIMESTAMP
);
COMMENT ON TABLE row_sources IS 'Tables and queries whose rows are documents; update_rows runs them again';
COMMENT ON COLUMN row_sources.definition IS 'Source, key, text and columns, as index_rows was given them';
COMMENT ON COLUMN row_sources.watermarks IS 'The greatest finite value, and the type, of each column that update_rows was told to begin from';
