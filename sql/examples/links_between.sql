-- Which document links to which, and how often?
SELECT source, target, count(*) AS links
FROM links
WHERE NOT external AND source <> target
GROUP BY source, target
ORDER BY links DESC, source, target
LIMIT 10;
