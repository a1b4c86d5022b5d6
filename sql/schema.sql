-- The tables of a store. Written for 384 dimensions; for another model the loader puts its number in place of 384 and
-- repeats or drops the lines of w0, w1 … (one for every 128 dimensions), here and in macros/vector_query.sql.

-- One row per chunk. The first five columns are the published layout. w0, w1 … are the signs of the vector, 128 to a word,
-- the first dimension in the highest bit; rid is the key that the lexical index uses. shown is the chunk as a reader of the page
-- sees it, NULL where that is text: as many characters, soft hyphens in the place of markup, so that every word has the offset that
-- it has in text; then, on a line of its own, the header row of a table that the chunk continues. The macro visible reads it.
CREATE TABLE documents (
    node_id VARCHAR PRIMARY KEY,
    text VARCHAR NOT NULL,
    embedding FLOAT[384] NOT NULL,
    metadata_ JSON NOT NULL,
    doc_id VARCHAR NOT NULL,
    collection VARCHAR NOT NULL,
    chunk_index INTEGER NOT NULL,
    i_start INTEGER,
    i_end INTEGER,
    page INTEGER,
    heading_path VARCHAR[] NOT NULL,
    tags VARCHAR[] NOT NULL,
    checksum VARCHAR NOT NULL,
    shown VARCHAR,
    w0 HUGEINT NOT NULL,
    w1 HUGEINT NOT NULL,
    w2 HUGEINT NOT NULL,
    rid INTEGER NOT NULL
);

-- shown_end is where the last chunk would end, NULL where that is the end of the text: what follows is markup alone.
CREATE TABLE source_documents (
    doc_id VARCHAR PRIMARY KEY,
    file_path VARCHAR NOT NULL,
    file_name VARCHAR NOT NULL,
    text VARCHAR NOT NULL,
    metadata_ JSON NOT NULL,
    created_at TIMESTAMP NOT NULL,
    collection VARCHAR NOT NULL,
    checksum VARCHAR NOT NULL,
    mime VARCHAR NOT NULL,
    size_bytes BIGINT NOT NULL,
    modified_at TIMESTAMP,
    tags VARCHAR[] NOT NULL,
    body_start INTEGER NOT NULL,
    page_starts INTEGER[] NOT NULL,
    chunk_policy JSON,
    shown_end INTEGER
);

-- One row per link of a Markdown document, in the order of the text. target is the doc_id that it points to, whether the
-- file has such a document or not; NULL where it points out of the collection, and for a wikilink, whose note is a name or the
-- end of a path: the view links looks the document up.
CREATE TABLE document_links (
    doc_id VARCHAR NOT NULL,
    link_index INTEGER NOT NULL,
    i_start INTEGER NOT NULL,
    i_end INTEGER NOT NULL,
    label VARCHAR NOT NULL,
    url VARCHAR NOT NULL,
    target VARCHAR,
    fragment VARCHAR,
    note VARCHAR
);

CREATE TABLE embedding_metadata (key VARCHAR PRIMARY KEY, value VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL);

CREATE TABLE collections (collection VARCHAR PRIMARY KEY, input_dir VARCHAR NOT NULL, created_at TIMESTAMP NOT NULL);

CREATE TABLE ingest_failures (
    doc_id VARCHAR PRIMARY KEY,
    status VARCHAR NOT NULL,
    reason VARCHAR NOT NULL,
    failed_at TIMESTAMP NOT NULL
);

CREATE TABLE ingest_log (
    run_id VARCHAR PRIMARY KEY,
    kind VARCHAR NOT NULL,
    started_at TIMESTAMP NOT NULL,
    finished_at TIMESTAMP NOT NULL,
    input_dir VARCHAR NOT NULL,
    collection VARCHAR NOT NULL,
    files INTEGER NOT NULL,
    documents INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    chunks INTEGER NOT NULL,
    embedded INTEGER NOT NULL,
    embedding_calls INTEGER NOT NULL,
    reused INTEGER NOT NULL,
    failed INTEGER NOT NULL,
    skipped INTEGER NOT NULL,
    seconds JSON NOT NULL
);

CREATE TABLE query_embeddings (
    query_text VARCHAR PRIMARY KEY,
    embedding FLOAT[384] NOT NULL,
    model_name VARCHAR NOT NULL,
    created_at TIMESTAMP NOT NULL
);

-- One row per point of the map that corpus_map has drawn: chunks, or whole documents. It is replaced as a whole.
CREATE TABLE corpus_map (
    node_id VARCHAR,
    doc_id VARCHAR NOT NULL,
    x DOUBLE NOT NULL,
    y DOUBLE NOT NULL,
    cluster INTEGER NOT NULL,
    label VARCHAR NOT NULL
);
