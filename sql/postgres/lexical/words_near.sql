-- The words that may be near one, by their length and their first or last characters, and how many chunks hold each.
SELECT word, sum(n)::integer
FROM postings
WHERE (starts_with(word, %(first)s::text) OR right(word, 2) = %(last)s::text)
  AND length(word) BETWEEN %(length)s - %(most)s AND %(length)s + %(most)s
GROUP BY word
HAVING sum(n) > 0
ORDER BY word;
