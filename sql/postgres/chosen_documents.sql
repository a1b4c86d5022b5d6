-- The documents that meet every condition that is not NULL, and how many chunks they have. The conditions in place of the mark
-- are on tags and metadata: a document is chosen where it meets them itself, or all of its chunks do.
WITH by_chunks AS (
    SELECT doc_id, count(*) AS chunks, bool_and(/* conditions */ true) AS pass FROM chunks GROUP BY doc_id
),
by_document AS (
    SELECT doc_id, /* conditions */ true AS pass
    FROM (SELECT doc_id, NULL::text AS node_id, tags, metadata_::jsonb AS metadata FROM documents) AS own
)
SELECT s.doc_id, coalesce(c.chunks, 0)
FROM documents AS s JOIN by_document AS d USING (doc_id) LEFT JOIN by_chunks AS c USING (doc_id)
WHERE (%(doc_ids)s::text[] IS NULL OR s.doc_id = ANY(%(doc_ids)s::text[]))
  AND (%(checksum)s::text IS NULL OR s.checksum = %(checksum)s::text)
  AND (%(collection)s::text[] IS NULL OR s.collection = ANY(%(collection)s::text[]))
  AND (coalesce(c.pass, false) OR d.pass)
ORDER BY s.doc_id;
