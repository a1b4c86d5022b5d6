-- A bit for each rid from 0: 1 where the chunk's metadata meet the conditions, see metadata_matches. NULL for no condition.
-- The searches read these bits and not the metadata: planning the comparisons takes longer than a small search.
CREATE OR REPLACE MACRO passing_chunks(metadata) AS (
    SELECT CAST(string_agg(repeat('0', chunk.gap) || CASE WHEN chunk.holds THEN '1' ELSE '0' END, '' ORDER BY chunk.rid) AS BIT)
    FROM (
        SELECT d.rid, d.rid - lag(d.rid, 1, -1) OVER (ORDER BY d.rid) - 1 AS gap,
               metadata_matches(d.metadata_, metadata, doc_id := d.doc_id, node_id := d.node_id) AS holds
        FROM documents AS d
        WHERE metadata IS NOT NULL
    ) AS chunk);
