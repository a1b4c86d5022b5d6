-- The length of every chunk in characters.
SELECT length(text) AS characters FROM documents ORDER BY rid;
