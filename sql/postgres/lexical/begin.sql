-- In DuckDB: where the words of chunks are collected, see count_words; rid is the place of a chunk among those that are given.
CREATE OR REPLACE TEMP TABLE counted_words (word VARCHAR, rid BIGINT, tf BIGINT, heading_tf BIGINT, len BIGINT, heading_len BIGINT);

CREATE OR REPLACE TEMP TABLE measured_chunks (rid BIGINT, len BIGINT, heading_len BIGINT, hash UBIGINT);
