-- From schema 0, that of sqlrooms-rag 0.1.2 and llama-index-vector-stores-duckdb, to schema 1: ids and vectors are kept,
-- vectors scaled to length 1, and the headings that were pasted into a chunk's text moved into heading_path. Tables
-- without constraints: the rows are copied into new tables at the end.

-- The tables and columns that the published package omits where they would be empty.
ALTER TABLE documents ADD COLUMN IF NOT EXISTS doc_id VARCHAR;

CREATE TABLE IF NOT EXISTS source_documents (
    doc_id VARCHAR, file_path VARCHAR, file_name VARCHAR, text VARCHAR, metadata_ JSON, created_at TIMESTAMP
);

-- The index of DuckDB's extension fts: it is not needed any more.
DROP SCHEMA IF EXISTS fts_main_documents CASCADE;

-- The chunks as they are, each with what is wrong with it, if anything is.
CREATE TABLE read_chunks AS
WITH numbers AS (
    SELECT rowid AS place, node_id, text, metadata_, CAST(embedding AS DOUBLE[]) AS vector,
           -- llama-index writes 'None' where there is no document.
           coalesce(doc_id, nullif(metadata_ ->> 'ref_doc_id', 'None'), nullif(metadata_ ->> 'doc_id', 'None'),
                    nullif(metadata_ ->> 'document_id', 'None'), node_id) AS doc_id,
           coalesce(metadata_ ->> 'header_path', metadata_ ->> 'section_header', '') AS header,
           row_number() OVER (PARTITION BY node_id ORDER BY rowid) AS occurrence
    FROM documents
)
SELECT *,
       CASE
           WHEN node_id IS NULL THEN 'it has no node_id'
           WHEN occurrence > 1 THEN 'another chunk has the same node_id'
           WHEN coalesce(trim(text, E' \t\n\r'), '') = '' THEN 'it is blank'
           WHEN vector IS NULL THEN 'it has no vector'
           WHEN length(vector) <> $dimensions THEN 'its vector has ' || length(vector) || ' dimensions, not ' || $dimensions
           WHEN length(list_filter(vector, lambda x: isfinite(x))) < $dimensions THEN 'its vector is not finite'
           WHEN list_sum(list_transform(vector, lambda x: x * x)) < 1e-24 THEN 'its vector is zero'
       END AS fault
FROM numbers;

-- A heading was pasted header_weight times before the text of a chunk.
CREATE TABLE cut_chunks AS
WITH options AS (
    SELECT greatest(1, coalesce(max(TRY_CAST(value AS INTEGER)) FILTER (WHERE key = 'header_weight'), 1)) AS weight
    FROM embedding_metadata
),
pasted AS (
    SELECT c.*, CASE WHEN header = '' THEN '' ELSE repeat(header || chr(10), weight) || chr(10) END AS paste
    FROM read_chunks AS c, options
    WHERE fault IS NULL
),
bare AS (
    SELECT * EXCLUDE (text, paste),
           CASE
               WHEN paste <> '' AND starts_with(text, paste) AND trim(text[length(paste) + 1:], E' \t\n\r') <> ''
               THEN text[length(paste) + 1:]
               ELSE text
           END AS text
    FROM pasted
)
SELECT *,
       list_filter(
           list_append(string_split(header, '/'), trim(regexp_extract(text, '^#{1,6}[ \t]+([^\n]+)', 1), ' #')),
           lambda title: trim(title) <> '') AS heading_path
FROM bare;

-- A chunk may name a document that was not stored: then its chunks replace it.
CREATE TABLE new_sources AS
SELECT doc_id, coalesce(file_path, '') AS file_path, coalesce(file_name, '') AS file_name, coalesce(text, '') AS text,
       coalesce(metadata_, '{}') AS metadata_, coalesce(created_at, TIMESTAMP '1970-01-01') AS created_at
FROM source_documents
WHERE doc_id IS NOT NULL
UNION ALL
SELECT doc_id, coalesce(any_value(metadata_ ->> 'file_path'), ''), coalesce(any_value(metadata_ ->> 'file_name'), ''),
       string_agg(text, E'\n\n' ORDER BY place), '{}', TIMESTAMP '1970-01-01'
FROM cut_chunks ANTI JOIN source_documents USING (doc_id)
GROUP BY doc_id;

DROP TABLE source_documents;

CREATE TABLE source_documents AS
SELECT *, 'default' AS collection, '' AS checksum, 'text/markdown' AS mime,
       coalesce(TRY_CAST(metadata_ ->> 'file_size' AS BIGINT), strlen(text)) AS size_bytes,
       TRY_CAST(metadata_ ->> 'last_modified_date' AS TIMESTAMP) AS modified_at, CAST([] AS VARCHAR[]) AS tags,
       0 AS body_start, CAST([] AS INTEGER[]) AS page_starts
FROM new_sources;

DROP TABLE documents;

-- The position of a chunk in its document: llama-index's, else that of its text if it occurs once.
CREATE TABLE documents AS
WITH said AS (
    SELECT c.*, s.text AS source,
           TRY_CAST(json_extract_string(TRY_CAST(c.metadata_ ->> '_node_content' AS JSON), '$.start_char_idx') AS INTEGER) AS said_start,
           strpos(s.text, c.text) - 1 AS first_start
    FROM cut_chunks AS c JOIN source_documents AS s ON s.doc_id = c.doc_id
),
placed AS (
    SELECT *, CAST(CASE
               WHEN source[said_start + 1:said_start + length(text)] = text THEN said_start
               WHEN first_start >= 0 AND strpos(source[first_start + 2:], text) = 0 THEN first_start
           END AS INTEGER) AS i_start
    FROM said
)
SELECT node_id, text,
       CAST(list_transform([vector], lambda v: list_transform(v, lambda x: x / sqrt(list_sum(list_transform(v, lambda y: y * y)))))[1] AS FLOAT[384]) AS embedding,
       -- llama-index's own names of the document, which is in doc_id.
       json_merge_patch(coalesce(metadata_, '{}'), '{"doc_id": null, "document_id": null, "ref_doc_id": null}') AS metadata_,
       doc_id, 'default' AS collection,
       CAST(row_number() OVER (PARTITION BY doc_id ORDER BY place) - 1 AS INTEGER) AS chunk_index,
       i_start, CAST(i_start + length(text) AS INTEGER) AS i_end, CAST(NULL AS INTEGER) AS page,
       coalesce(heading_path, CAST([] AS VARCHAR[])) AS heading_path, CAST([] AS VARCHAR[]) AS tags, '' AS checksum,
       CAST(row_number() OVER (ORDER BY place) - 1 AS INTEGER) AS rid
FROM placed
ORDER BY rid;

CREATE TABLE ingest_failures AS
SELECT coalesce(node_id, 'row ' || place) || CASE WHEN occurrence > 1 THEN ' (' || occurrence || ')' ELSE '' END AS doc_id,
       'failed' AS status, 'The chunk was left out by sqlrag upgrade: ' || fault || '.' AS reason,
       CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP) AS failed_at
FROM read_chunks
WHERE fault IS NOT NULL;

DROP TABLE read_chunks;

DROP TABLE cut_chunks;

DROP TABLE new_sources;

-- The keys that sqlrooms-rag does not write. Its models run here on ONNX.
DELETE FROM embedding_metadata WHERE key IS NULL OR value IS NULL;

UPDATE embedding_metadata SET value = 'onnx' WHERE key = 'embedding_provider' AND value = 'huggingface';

INSERT INTO embedding_metadata (key, value, created_at)
SELECT key, value, CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)
FROM (VALUES
    ('version', '1.0'), ('created_at', '1970-01-01T00:00:00+00:00'), ('embedding_provider', 'given'),
    ('embedding_model', 'given'), ('embedding_dimensions', CAST($dimensions AS VARCHAR)), ('chunking_strategy', 'markdown-aware'),
    ('chunk_size', '512'), ('include_headers', 'True'), ('header_weight', '3'), ('hybrid_search_enabled', 'True'),
    ('fts_enabled', 'True'), ('source_documents_stored', 'True'), ('schema_version', '0'), ('sqlrag_version', ''),
    ('duckdb_version', ''), ('stemmer', 'porter'), ('llama_index_compatible', 'True'),
    ('chunk_overlap', '0'), ('chunk_unit', 'tokens'), ('chunk_policy_hash', ''),
    ('normalized', 'True'), ('max_tokens', '0'), ('query_prefix', ''), ('passage_prefix', ''), ('fingerprint', 'null'),
    ('upgraded_from', 'sqlrooms-rag')
) AS wanted(key, value)
ANTI JOIN embedding_metadata USING (key);
