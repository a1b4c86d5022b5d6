-- Adds a row of lengths.
INSERT INTO lengths (n, len, heading_len, block) VALUES (%(n)s, %(len)s, %(heading_len)s, %(block)s);
