-- The clusters of the map: their words, how many points they have, and the middle of these.
CREATE OR REPLACE VIEW topics AS
SELECT cluster, label, count(*) AS points, median(x) AS x, median(y) AS y
FROM corpus_map
WHERE cluster >= 0
GROUP BY cluster, label
ORDER BY cluster;
