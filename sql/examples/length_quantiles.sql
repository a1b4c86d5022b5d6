-- How long are the chunks of each collection?
SELECT collection, chunks, mean, shortest, p25, median, p75, p95, longest
FROM chunk_length_summary
ORDER BY collection
LIMIT 20;
