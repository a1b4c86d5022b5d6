-- The store in one row.
CREATE OR REPLACE VIEW corpus_stats AS
SELECT (SELECT count(*) FROM source_documents) AS documents,
       (SELECT count(*) FROM documents) AS chunks,
       (SELECT count(DISTINCT collection) FROM source_documents) AS collections,
       (SELECT CAST(coalesce(sum(length(text)), 0) AS BIGINT) FROM source_documents) AS characters,
       (SELECT round(avg(length(text)), 1) FROM documents) AS mean_chunk_characters,
       (SELECT count(*) FROM fts_main_documents.dict) AS terms,
       (SELECT round(avg_len, 1) FROM fts_main_documents.stats) AS mean_chunk_words,
       (SELECT count(*) FROM ingest_failures) AS failures,
       (SELECT value FROM embedding_metadata WHERE key = 'embedding_model') AS embedding_model,
       (SELECT CAST(value AS INTEGER) FROM embedding_metadata WHERE key = 'embedding_dimensions') AS dimensions;
