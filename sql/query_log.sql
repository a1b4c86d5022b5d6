-- The query log: a database of its own, which the setting query_log names.
CREATE TABLE IF NOT EXISTS queries (
    query_id VARCHAR NOT NULL,
    asked_at TIMESTAMP NOT NULL,
    store VARCHAR NOT NULL,
    mode VARCHAR NOT NULL,
    query_text VARCHAR NOT NULL,
    top_k INTEGER NOT NULL,
    results INTEGER,
    score_type VARCHAR,
    best_score DOUBLE,
    vector_candidates INTEGER,
    lexical_candidates INTEGER,
    total_seconds DOUBLE NOT NULL,
    seconds JSON NOT NULL,
    notices VARCHAR[] NOT NULL,
    error VARCHAR,
    request_id VARCHAR,
    scores DOUBLE[]
);

-- A log of before has neither.
ALTER TABLE queries ADD COLUMN IF NOT EXISTS request_id VARCHAR;

ALTER TABLE queries ADD COLUMN IF NOT EXISTS scores DOUBLE[];

-- How long queries take, in milliseconds.
CREATE VIEW IF NOT EXISTS query_latencies AS
SELECT mode, count(*) AS queries, round(quantile_cont(total_seconds, 0.5) * 1000, 1) AS p50_ms,
       round(quantile_cont(total_seconds, 0.95) * 1000, 1) AS p95_ms, round(max(total_seconds) * 1000, 1) AS max_ms
FROM queries
WHERE error IS NULL
GROUP BY mode
ORDER BY mode;

-- Questions without results.
CREATE VIEW IF NOT EXISTS queries_without_results AS
SELECT query_text, mode, count(*) AS queries, max(asked_at) AS last_asked_at, any_value(notices ORDER BY asked_at DESC) AS notices
FROM queries
WHERE results = 0
GROUP BY query_text, mode
ORDER BY queries DESC, query_text, mode;

-- Queries that ended in an error.
CREATE VIEW IF NOT EXISTS failed_queries AS
SELECT asked_at, mode, query_text, error, store FROM queries WHERE error IS NOT NULL ORDER BY asked_at, query_id;

-- Queries and their outcomes by day.
CREATE VIEW IF NOT EXISTS query_days AS
SELECT CAST(asked_at AS DATE) AS day, count(*) AS queries, count(DISTINCT query_text) AS questions,
       count(*) FILTER (results = 0) AS without_results, count(*) FILTER (error IS NOT NULL) AS failed,
       round(quantile_cont(total_seconds, 0.5) FILTER (error IS NULL) * 1000, 1) AS p50_ms
FROM queries
GROUP BY day
ORDER BY day DESC;

-- The most frequent questions.
CREATE VIEW IF NOT EXISTS frequent_queries AS
SELECT query_text, count(*) AS queries, max(asked_at) AS last_asked_at, round(avg(results), 1) AS mean_results
FROM queries
WHERE query_text <> ''
GROUP BY query_text
ORDER BY queries DESC, query_text;

-- The time of the queries by stage.
CREATE VIEW IF NOT EXISTS query_stages AS
WITH stages AS (
    SELECT mode, stage, CAST(json_extract_string(seconds, '$.' || stage) AS DOUBLE) AS seconds
    FROM (SELECT mode, seconds, unnest(json_keys(seconds)) AS stage FROM queries WHERE error IS NULL)
)
SELECT mode, stage, count(*) AS queries, round(quantile_cont(seconds, 0.5) * 1000, 1) AS p50_ms,
       round(quantile_cont(seconds, 0.95) * 1000, 1) AS p95_ms, round(sum(seconds), 3) AS total_seconds
FROM stages
GROUP BY mode, stage
ORDER BY mode, total_seconds DESC, stage;

COMMENT ON TABLE queries IS 'One row per query.';
COMMENT ON COLUMN queries.query_id IS 'Key of the row, random.';
COMMENT ON COLUMN queries.asked_at IS 'When it began, in UTC.';
COMMENT ON COLUMN queries.store IS 'The file that was searched.';
COMMENT ON COLUMN queries.mode IS 'hybrid, vector or lexical.';
COMMENT ON COLUMN queries.query_text IS 'What was asked; empty where only a vector was given.';
COMMENT ON COLUMN queries.top_k IS 'How many results were wanted.';
COMMENT ON COLUMN queries.results IS 'How many there were. NULL after an error.';
COMMENT ON COLUMN queries.score_type IS 'What the scores mean, such as rrf or bm25. NULL without results.';
COMMENT ON COLUMN queries.best_score IS 'Score of the first result. NULL without results.';
COMMENT ON COLUMN queries.vector_candidates IS 'How many chunks the vector leg gave. NULL after an error.';
COMMENT ON COLUMN queries.lexical_candidates IS 'How many chunks the lexical leg gave. NULL after an error.';
COMMENT ON COLUMN queries.total_seconds IS 'How long it took.';
COMMENT ON COLUMN queries.seconds IS 'How long each stage took, as a JSON object; the legs of a hybrid query run at the same time.';
COMMENT ON COLUMN queries.notices IS 'What the caller was told about the answer.';
COMMENT ON COLUMN queries.error IS 'Class and message of the error that ended the query. NULL where it was answered.';
COMMENT ON COLUMN queries.request_id IS 'The id of the request that the query belongs to, as in the header X-Request-ID and in other logs.';
COMMENT ON COLUMN queries.scores IS 'The score of each result, best first.';
COMMENT ON VIEW query_latencies IS 'How long queries take, by mode: median, 95th percentile and longest, in milliseconds.';
COMMENT ON VIEW queries_without_results IS 'What was asked and found nothing, most frequent first.';
COMMENT ON VIEW failed_queries IS 'Queries that ended in an error, in the order of time.';
COMMENT ON VIEW query_days IS 'How much was asked on each day (UTC), the last day first: queries, different questions, those that found nothing or failed, median in milliseconds.';
COMMENT ON VIEW frequent_queries IS 'How often each question was asked, when last, and how many results it had on average; most frequent first.';
COMMENT ON VIEW query_stages IS 'How long each stage of the queries took, by mode: median and 95th percentile in milliseconds, and the sum in seconds. The legs of a hybrid query run at the same time.';
