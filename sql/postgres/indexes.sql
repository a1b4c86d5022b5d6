-- The indexes of the two legs, which a large load creates at its end, since that is several times faster.
CREATE INDEX IF NOT EXISTS chunks_lexemes ON chunks USING gin (lexemes);
CREATE INDEX IF NOT EXISTS chunks_embedding ON chunks USING hnsw (embedding vector_cosine_ops) WITH (m = 16, ef_construction = 128);
