-- Which chunks are the longest, and where are they?
SELECT node_id, heading, characters
FROM chunks
ORDER BY characters DESC, node_id
LIMIT 10;
