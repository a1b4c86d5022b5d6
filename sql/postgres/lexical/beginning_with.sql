-- The terms of the words with a beginning, of which first is the first hundred characters.
SELECT DISTINCT term
FROM (
    SELECT word, term
    FROM postings
    WHERE left(word, 100) BETWEEN %(first)s::text AND %(first)s::text || chr(1114111) AND starts_with(word, %(prefix)s::text)
    GROUP BY word, term
    HAVING sum(n) > 0
) AS held
ORDER BY term;
