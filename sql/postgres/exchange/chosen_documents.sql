-- The documents to export and how many chunks each has: those of the collections that meet the other conditions, in place of the
-- mark, themselves or by one of their chunks.
WITH by_chunks AS (
    SELECT doc_id, count(*) AS chunks, bool_or(/* conditions */ true) AS pass FROM chunks GROUP BY doc_id
),
by_document AS (
    SELECT doc_id, /* conditions */ true AS pass
    FROM (SELECT doc_id, NULL::text AS node_id, tags, metadata_::jsonb AS metadata FROM documents) AS own
)
SELECT s.doc_id, coalesce(c.chunks, 0)
FROM documents AS s JOIN by_document AS d USING (doc_id) LEFT JOIN by_chunks AS c USING (doc_id)
WHERE (%(collection)s::text[] IS NULL OR s.collection = ANY(%(collection)s::text[])) AND (coalesce(c.pass, false) OR d.pass)
ORDER BY CASE WHEN %(by_collection)s::boolean THEN s.collection END, s.doc_id;
