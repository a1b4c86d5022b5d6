-- The published keys of embedding_metadata that count rows and characters, as whole numbers; a chunk that is a slice of its
-- document is as long as the slice.
SELECT counts.key, coalesce(round(counts.value::numeric), 0)::text
FROM (
    SELECT count(*) AS documents, count(DISTINCT file_path) AS files, sum(length(text)) AS characters FROM documents
) AS s, (
    SELECT count(*) AS chunks, min(n) AS least, max(n) AS most, percentile_cont(0.5) WITHIN GROUP (ORDER BY n) AS median,
           avg(n) AS mean, sum(n) AS characters
    FROM (SELECT CASE WHEN i_start IS NULL THEN length(content) ELSE i_end - i_start END AS n FROM chunks) AS lengths
) AS c, LATERAL (VALUES
    ('total_source_documents', s.documents::double precision), ('unique_files', s.files), ('source_total_characters', s.characters),
    ('total_chunks', c.chunks), ('min_chunk_size', c.least), ('max_chunk_size', c.most), ('median_chunk_size', c.median),
    ('mean_chunk_size', c.mean), ('chunks_total_characters', c.characters)
) AS counts(key, value)
ORDER BY counts.key;
