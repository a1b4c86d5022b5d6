-- The index of the vector leg of a large store, which a load creates at its end, since that is several times faster.
CREATE INDEX IF NOT EXISTS chunks_embedding ON chunks USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 64);
