-- The outline of each document: every title with the chunks below it, those of its subtitles included.
CREATE OR REPLACE VIEW headings AS
WITH titles AS (
    SELECT doc_id, node_id, chunk_index, length(text) AS characters, heading_path AS path,
           unnest(range(1, len(heading_path) + 1)) AS level
    FROM documents
),
above AS (SELECT *, path[1:level] AS heading_path, path[level] AS heading FROM titles)
SELECT doc_id, heading_path, level, heading, arg_min(node_id, chunk_index) AS first_chunk,
       min(chunk_index) AS chunk_index, count(*) AS chunks,
       CAST(sum(characters) AS BIGINT) AS characters
FROM above
GROUP BY doc_id, heading_path, level, heading
ORDER BY doc_id, min(above.chunk_index), level, heading_path;
