-- Takes the rows that are not full of the words that have at least so many of them; with every, all rows of the words of which
-- chunks were removed.
DELETE FROM postings AS p
USING (
    SELECT word
    FROM postings
    WHERE abs(n) < %(full)s
    GROUP BY word
    HAVING count(*) >= %(rows)s AND (NOT %(every)s OR min(n) < 0)
) AS chosen
WHERE left(p.word, 100) = left(chosen.word, 100) AND p.word = chosen.word AND abs(p.n) < %(full)s
RETURNING term, p.word, n, block;
