-- How are the lengths of the chunks distributed, in steps of 100 characters?
SELECT from_characters, chunks, round(100 * chunks / sum(chunks) OVER (), 1) AS percent, bar(chunks, 0, max(chunks) OVER (), 20) AS bar
FROM chunk_lengths
ORDER BY from_characters
LIMIT 50;
