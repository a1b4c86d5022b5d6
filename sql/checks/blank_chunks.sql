-- A chunk holds text.
SELECT node_id FROM documents WHERE trim(text, E' \t\n\r') = '' ORDER BY node_id;
