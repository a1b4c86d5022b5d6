-- The best cosine of the chunks of each document that pass the filters, and when the document is dated. The loader puts the column of
-- the date in the place of $given.
WITH searched AS MATERIALIZED (
    SELECT CAST(g.v AS DOUBLE[384]) AS v, vector_length(g.v) AS length FROM (SELECT CAST($vector AS FLOAT[384]) AS v) AS g
), scored AS (
    SELECT d.doc_id, max(greatest(-1, least(1, round(TRY(array_inner_product(CAST(d.embedding AS DOUBLE[384]), q.v)) / q.length, 9)))) AS score
    FROM documents AS d CROSS JOIN searched AS q
    WHERE passes(d.rid, d.collection, d.tags, $passing, $collection, $tags_any, $tags_all)
      AND isfinite(TRY(array_inner_product(CAST(d.embedding AS DOUBLE[384]), q.v)))
    GROUP BY d.doc_id
)
SELECT c.score, CAST($given AS VARCHAR) AS given
FROM scored AS c JOIN source_documents AS s ON s.doc_id = c.doc_id;
