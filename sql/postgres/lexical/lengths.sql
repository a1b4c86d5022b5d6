-- The lengths of all chunks, what samples of them are taken by, and the sums of the lengths.
SELECT n, block, len, heading_len FROM lengths ORDER BY n;
