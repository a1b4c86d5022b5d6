-- What searches and writers need beside the tables, where somebody dropped it.
ALTER TABLE chunks ADD COLUMN IF NOT EXISTS code bit(384) GENERATED ALWAYS AS (binary_quantize(embedding)::bit(384)) STORED;

CREATE UNIQUE INDEX IF NOT EXISTS embedding_metadata_pkey ON embedding_metadata (key);
CREATE UNIQUE INDEX IF NOT EXISTS collections_pkey ON collections (collection);
CREATE UNIQUE INDEX IF NOT EXISTS documents_pkey ON documents (doc_id);
CREATE UNIQUE INDEX IF NOT EXISTS chunks_pkey ON chunks (node_id);
CREATE UNIQUE INDEX IF NOT EXISTS chunks_collection_doc_id_chunk_index_key ON chunks (collection, doc_id, chunk_index);
CREATE UNIQUE INDEX IF NOT EXISTS chunks_rid ON chunks (rid) INCLUDE (code);
CREATE INDEX IF NOT EXISTS chunks_doc_id ON chunks (doc_id, chunk_index);
CREATE INDEX IF NOT EXISTS chunks_tags ON chunks USING gin (tags);
CREATE INDEX IF NOT EXISTS chunks_metadata ON chunks USING gin (metadata jsonb_path_ops);
