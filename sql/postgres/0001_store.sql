-- The tables of a store in Postgres with pgvector, in a schema of its own. Written for 384 dimensions; the loader
-- puts the number of a store's model in their place. Text that is ordered or compared is in the collation "C", so that ties fall
-- as they do in a DuckDB file: by code points.

CREATE TABLE migrations (version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now());

CREATE TABLE embedding_metadata (key text COLLATE "C" PRIMARY KEY, value text NOT NULL, created_at timestamp NOT NULL);

-- Every collection of a store has its model and number of dimensions.
CREATE TABLE collections (
    collection text COLLATE "C" PRIMARY KEY,
    embed_model text NOT NULL,
    embed_dims integer NOT NULL,
    created_at timestamp NOT NULL
);

-- metadata_ is json and not jsonb, which keeps the text of numbers and the order of keys. digest is of the document with its
-- chunks and vectors, where a push has written it.
CREATE TABLE documents (
    doc_id text COLLATE "C" PRIMARY KEY,
    file_path text NOT NULL,
    file_name text NOT NULL,
    text text NOT NULL,
    metadata_ json NOT NULL,
    created_at timestamp NOT NULL DEFAULT (now() AT TIME ZONE 'UTC'),
    collection text COLLATE "C" NOT NULL REFERENCES collections,
    checksum text NOT NULL,
    mime text NOT NULL,
    size_bytes bigint NOT NULL,
    modified_at timestamp,
    tags text[] COLLATE "C" NOT NULL,
    body_start integer NOT NULL,
    page_starts integer[] NOT NULL,
    chunk_policy json,
    digest text
);

-- One row per chunk. metadata is metadata_ to search in, without llama-index's fields.
CREATE TABLE chunks (
    rid bigint GENERATED ALWAYS AS IDENTITY,
    node_id text COLLATE "C" PRIMARY KEY,
    doc_id text COLLATE "C" NOT NULL REFERENCES documents ON DELETE CASCADE,
    collection text COLLATE "C" NOT NULL REFERENCES collections,
    chunk_index integer NOT NULL,
    content text NOT NULL,
    metadata_ json NOT NULL,
    metadata jsonb NOT NULL,
    i_start integer,
    i_end integer,
    page integer,
    heading_path text[] COLLATE "C" NOT NULL,
    tags text[] COLLATE "C" NOT NULL,
    checksum text NOT NULL,
    embedding vector(384) NOT NULL,
    UNIQUE (collection, doc_id, chunk_index)
);

CREATE UNIQUE INDEX chunks_rid ON chunks (rid);
CREATE INDEX chunks_doc_id ON chunks (doc_id, chunk_index);
CREATE INDEX chunks_tags ON chunks USING gin (tags);
CREATE INDEX chunks_metadata ON chunks USING gin (metadata jsonb_path_ops);
