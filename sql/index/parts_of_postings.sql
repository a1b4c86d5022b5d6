-- Ranges of terms with about $many staged postings each, in their order.
SELECT min(termid) AS low, max(termid) AS high
FROM (
    SELECT termid, sum(n) OVER (ORDER BY termid) // $many AS part
    FROM (SELECT termid, count(*) AS n FROM staged_postings GROUP BY termid)
)
GROUP BY part
ORDER BY low;
