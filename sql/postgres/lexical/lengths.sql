-- The lengths of all chunks, and what samples of them are taken by.
SELECT n, block FROM lengths ORDER BY n;
