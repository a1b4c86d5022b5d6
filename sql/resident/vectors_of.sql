-- The vectors of chunks, given as a list of their rid.
SELECT d.rid, d.embedding FROM documents AS d WHERE d.rid IN (SELECT unnest($rids)) ORDER BY d.rid;
