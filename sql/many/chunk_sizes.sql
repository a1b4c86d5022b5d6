-- The length of each chunk in characters, as refresh_counts.sql has it.
SELECT coalesce(i_end - i_start, length(text)) AS size FROM documents;
