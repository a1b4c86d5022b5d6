-- How many documents each document links to and is linked from; several links to one count once, those to itself not.
CREATE OR REPLACE VIEW link_degrees AS
WITH edges AS (
    SELECT DISTINCT source, target FROM links WHERE NOT external AND NOT broken AND source <> target
),
outgoing AS (SELECT source AS doc_id, count(*) AS documents FROM edges GROUP BY source),
incoming AS (SELECT target AS doc_id, count(*) AS documents FROM edges GROUP BY target),
counts AS (
    SELECT source AS doc_id, count(*) AS links, count(*) FILTER (external) AS external, count(*) FILTER (broken) AS broken
    FROM links
    GROUP BY source
)
SELECT s.doc_id, coalesce(o.documents, 0) AS outdegree, coalesce(i.documents, 0) AS indegree, coalesce(c.links, 0) AS links,
       coalesce(c.external, 0) AS external, coalesce(c.broken, 0) AS broken
FROM source_documents AS s
LEFT JOIN outgoing AS o ON o.doc_id = s.doc_id
LEFT JOIN incoming AS i ON i.doc_id = s.doc_id
LEFT JOIN counts AS c ON c.doc_id = s.doc_id
ORDER BY indegree DESC, outdegree DESC, s.doc_id;
