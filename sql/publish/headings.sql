-- The headings of chunks, for phrases: a browser's DuckDB has no json functions to read the front matter with.
CREATE TABLE published_headings AS
SELECT d.rid, fts_main_documents.heading_text(d.heading_path, d.chunk_index, d.metadata_, d.tags) AS headings
FROM documents AS d
ORDER BY d.rid;
