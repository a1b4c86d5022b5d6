-- The words that may be near one, by their length and their first or last characters, and how many chunks hold each.
SELECT word, sum(n)::integer
FROM postings
WHERE (left(word, 100) BETWEEN %(first)s::text AND %(first)s::text || chr(1114111) OR right(word, 2) = %(last)s::text)
  AND length(word) BETWEEN %(length)s::integer - %(most)s::integer AND %(length)s::integer + %(most)s::integer
GROUP BY word
HAVING sum(n) > 0
ORDER BY word;
