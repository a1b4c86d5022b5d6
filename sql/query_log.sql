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
    error VARCHAR
);

-- How long queries take, in milliseconds.
CREATE VIEW IF NOT EXISTS query_latencies AS
SELECT mode, count(*) AS queries, round(quantile_cont(total_seconds, 0.5) * 1000, 1) AS p50_ms,
       round(quantile_cont(total_seconds, 0.95) * 1000, 1) AS p95_ms, round(max(total_seconds) * 1000, 1) AS max_ms
FROM queries
WHERE error IS NULL
GROUP BY mode
ORDER BY mode;

-- What was asked in vain.
CREATE VIEW IF NOT EXISTS queries_without_results AS
SELECT query_text, mode, count(*) AS queries, max(asked_at) AS last_asked_at, any_value(notices ORDER BY asked_at DESC) AS notices
FROM queries
WHERE results = 0
GROUP BY query_text, mode
ORDER BY queries DESC, query_text, mode;

-- What ended in an error.
CREATE VIEW IF NOT EXISTS failed_queries AS
SELECT asked_at, mode, query_text, error, store FROM queries WHERE error IS NOT NULL ORDER BY asked_at, query_id;

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
COMMENT ON VIEW query_latencies IS 'How long queries take, by mode: median, 95th percentile and longest, in milliseconds.';
COMMENT ON VIEW queries_without_results IS 'What was asked and found nothing, most frequent first.';
COMMENT ON VIEW failed_queries IS 'Queries that ended in an error, in the order of time.';
