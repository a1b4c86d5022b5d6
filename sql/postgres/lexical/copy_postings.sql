COPY postings (term, word, n, block) FROM STDIN (FORMAT BINARY)
