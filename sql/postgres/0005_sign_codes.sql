-- The sign code of each vector, a bit a dimension, beside rid in an index: a search reads 70 bytes a chunk in place of its vector.
ALTER TABLE chunks ADD COLUMN code bit(384) NOT NULL GENERATED ALWAYS AS (binary_quantize(embedding)::bit(384)) STORED;

DROP INDEX chunks_rid;
CREATE UNIQUE INDEX chunks_rid ON chunks (rid) INCLUDE (code);
