-- The published keys of embedding_metadata that count rows and characters, recomputed from the tables; whole
-- numbers all of them, as the published readers expect. A chunk that is a slice of its source is as long as the slice,
-- so that its text need not be read.
INSERT OR REPLACE INTO embedding_metadata
WITH counted AS (
    SELECT count(*) AS chunks, min(n) AS shortest, max(n) AS longest, median(n) AS middle, avg(n) AS mean, sum(n) AS characters
    FROM (
        SELECT i_end - i_start AS n FROM documents WHERE i_start IS NOT NULL
        UNION ALL
        SELECT length(text) FROM documents WHERE i_start IS NULL
    )
),
sources AS (
    SELECT count(*) AS documents, sum(length(s.text)) AS characters,
        count(DISTINCT CASE WHEN ends_with(s.doc_id, s.file_path) THEN rtrim(coalesce(c.input_dir, ''), '/') || '/' ELSE '' END
            || s.file_path) AS files
    FROM source_documents AS s LEFT JOIN collections AS c ON c.collection = s.collection
)
SELECT key, CAST(CAST(round(coalesce(value, 0)) AS BIGINT) AS VARCHAR), CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)
FROM (
    SELECT unnest(['total_chunks', 'min_chunk_size', 'max_chunk_size', 'median_chunk_size', 'mean_chunk_size', 'chunks_total_characters',
                   'total_source_documents', 'unique_files', 'source_total_characters']) AS key,
           unnest([chunks, shortest, longest, middle, mean, counted.characters, documents, files, sources.characters]) AS value
    FROM counted, sources
);
