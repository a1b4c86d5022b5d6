-- How the map was drawn and whether it is complete: one row, or none where there is no map.
CREATE OR REPLACE VIEW map_status AS
WITH counts AS (
    SELECT json_extract_string(value, '$.level') AS level, json_extract_string(value, '$.method') AS method,
           json_extract_string(value, '$.clusters') AS clusters, created_at, (SELECT count(*) FROM corpus_map) AS points,
           CASE WHEN json_extract_string(value, '$.level') = 'document' THEN (SELECT count(DISTINCT doc_id) FROM documents)
                ELSE (SELECT count(*) FROM documents) END AS wanted
    FROM embedding_metadata WHERE key = 'corpus_map'
)
SELECT level, method, clusters, points, wanted - points AS missing, wanted = points AS in_step, created_at FROM counts;
