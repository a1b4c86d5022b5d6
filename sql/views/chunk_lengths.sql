-- How long the chunks are, in classes of 100 characters.
CREATE OR REPLACE VIEW chunk_lengths AS
SELECT CAST(floor(length(text) / 100.0) * 100 AS INTEGER) AS from_characters, count(*) AS chunks
FROM documents
GROUP BY from_characters
ORDER BY from_characters;
