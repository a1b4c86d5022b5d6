-- The published keys of embedding_metadata that count rows and characters, taken afresh from the tables; whole
-- numbers all of them, as the published readers expect.
INSERT OR REPLACE INTO embedding_metadata
SELECT key, value, CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)
FROM (
    SELECT 'total_chunks' AS key, CAST(count(*) AS VARCHAR) AS value FROM documents
    UNION ALL SELECT 'min_chunk_size', CAST(coalesce(min(length(text)), 0) AS VARCHAR) FROM documents
    UNION ALL SELECT 'max_chunk_size', CAST(coalesce(max(length(text)), 0) AS VARCHAR) FROM documents
    UNION ALL SELECT 'median_chunk_size', CAST(CAST(coalesce(round(median(length(text))), 0) AS BIGINT) AS VARCHAR) FROM documents
    UNION ALL SELECT 'mean_chunk_size', CAST(CAST(coalesce(round(avg(length(text))), 0) AS BIGINT) AS VARCHAR) FROM documents
    UNION ALL SELECT 'chunks_total_characters', CAST(coalesce(sum(length(text)), 0) AS VARCHAR) FROM documents
    UNION ALL SELECT 'total_source_documents', CAST(count(*) AS VARCHAR) FROM source_documents
    UNION ALL SELECT 'unique_files', CAST(count(DISTINCT file_path) AS VARCHAR) FROM source_documents
    UNION ALL SELECT 'source_total_characters', CAST(coalesce(sum(length(text)), 0) AS VARCHAR) FROM source_documents
);
