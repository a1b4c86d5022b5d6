-- Marks pages that every reader sees whole, so that a search reads an index in place of the rows; not inside of a transaction.
VACUUM chunks;
