-- Every block of postings, with its term and word.
SELECT term || ' ' || word, n, block FROM postings;
