-- The words of the chunks from rid $first on, counted.
CREATE OR REPLACE TEMP TABLE staged_tokens AS
SELECT rid, word, CAST(sum(in_text) AS INTEGER) AS tf, CAST(sum(in_heading) AS INTEGER) AS heading_tf
FROM (
    SELECT rid, unnest(fts_main_documents.tokenize(text)) AS word, 1 AS in_text, 0 AS in_heading
    FROM documents WHERE rid >= $first
    UNION ALL
    SELECT rid, unnest(fts_main_documents.tokenize(array_to_string(heading_path, ' '))), 0, 1
    FROM documents WHERE rid >= $first
)
GROUP BY rid, word;
