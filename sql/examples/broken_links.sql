-- Which links point to a document that the file does not have?
SELECT source, label, url, target
FROM links
WHERE broken
ORDER BY source, link_index
LIMIT 20;
