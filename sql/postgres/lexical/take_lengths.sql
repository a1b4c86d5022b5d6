-- Takes the rows of lengths that are not full.
DELETE FROM lengths WHERE abs(n) < %(full)s RETURNING n, block;
