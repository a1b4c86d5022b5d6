-- How long the chunks of each collection are, in characters.
CREATE OR REPLACE VIEW chunk_length_summary AS
SELECT collection, count(*) AS chunks, round(avg(length(text)), 1) AS mean, round(stddev_samp(length(text)), 1) AS std_dev,
       min(length(text)) AS shortest, round(quantile_cont(length(text), 0.25), 1) AS p25, round(quantile_cont(length(text), 0.5), 1) AS median,
       round(quantile_cont(length(text), 0.75), 1) AS p75, round(quantile_cont(length(text), 0.95), 1) AS p95, max(length(text)) AS longest
FROM documents
GROUP BY collection
ORDER BY collection;
