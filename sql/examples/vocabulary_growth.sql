-- In how many chunks do terms occur: how many in one only, how many in thousands?
SELECT 10 ** floor(log10(df)) AS from_chunks, count(*) AS terms, sum(total_tf) AS occurrences
FROM vocabulary
GROUP BY from_chunks
ORDER BY from_chunks
LIMIT 10;
