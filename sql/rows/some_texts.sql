-- Checksums of some of the texts, the same ones whatever the order of the rows.
SELECT DISTINCT checksum FROM staged ORDER BY checksum LIMIT 100;
