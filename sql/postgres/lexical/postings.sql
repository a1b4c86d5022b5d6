-- The blocks of terms; beginnings are the first hundred characters of each, which the index has.
SELECT term, word, n, block
FROM postings
WHERE left(term, 100) = ANY(%(beginnings)s::text[]) AND term = ANY(%(terms)s::text[])
ORDER BY term, word;
