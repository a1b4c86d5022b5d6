-- A bit for each rid from 0: 1 where the chunk's metadata meet the conditions, see metadata_matches. NULL for no condition.
-- The searches read these bits and not the metadata: planning the comparisons takes longer than a small search. They are a
-- text for query(), so that a search without them needs no function of the json extension, which not every DuckDB has.
CREATE OR REPLACE MACRO passing_chunks(metadata) AS (
    SELECT CAST(string_agg(repeat('0', chunk.gap) || CASE WHEN chunk.holds THEN '1' ELSE '0' END, '' ORDER BY chunk.rid) AS BIT)
    FROM query(CASE WHEN metadata IS NULL THEN 'SELECT 0 AS rid, 0 AS gap, false AS holds WHERE false' ELSE replace(
        'SELECT d.rid, d.rid - lag(d.rid, 1, -1) OVER (ORDER BY d.rid) - 1 AS gap,
                metadata_matches(d.metadata_, $wanted, doc_id := d.doc_id, node_id := d.node_id) AS holds
         FROM documents AS d', '$wanted', '''' || replace(CAST(metadata AS VARCHAR), '''', '''''') || '''') END) AS chunk);
