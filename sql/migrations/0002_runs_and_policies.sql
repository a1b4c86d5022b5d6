-- From schema 1 to schema 2: what update_embeddings needs of a document and of a run. Older documents do not
-- record how they were chunked, so they stay as they are until their file changes. The sign codes of 128 bits and the
-- lexical index with counted words are rebuilt when the rows are copied into new tables at the end.
ALTER TABLE source_documents ADD COLUMN IF NOT EXISTS body_start INTEGER DEFAULT 0;

ALTER TABLE source_documents ADD COLUMN IF NOT EXISTS page_starts INTEGER[] DEFAULT [];

ALTER TABLE source_documents ADD COLUMN IF NOT EXISTS chunk_policy JSON;

ALTER TABLE IF EXISTS ingest_log ADD COLUMN IF NOT EXISTS kind VARCHAR DEFAULT 'build';

ALTER TABLE IF EXISTS ingest_log ADD COLUMN IF NOT EXISTS documents INTEGER DEFAULT 0;

ALTER TABLE IF EXISTS ingest_log ADD COLUMN IF NOT EXISTS removed INTEGER DEFAULT 0;

ALTER TABLE IF EXISTS ingest_log ADD COLUMN IF NOT EXISTS embedded INTEGER DEFAULT 0;

ALTER TABLE IF EXISTS ingest_log ADD COLUMN IF NOT EXISTS embedding_calls INTEGER DEFAULT 0;

ALTER TABLE IF EXISTS ingest_log ADD COLUMN IF NOT EXISTS reused INTEGER DEFAULT 0;

INSERT INTO embedding_metadata (key, value, created_at)
SELECT 'llama_index_compatible', 'True', CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)
WHERE NOT EXISTS (SELECT 1 FROM embedding_metadata WHERE key = 'llama_index_compatible');
