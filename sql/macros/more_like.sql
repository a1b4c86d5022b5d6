-- The k chunks nearest to a chunk by cosine, itself left out: FROM more_like('guides/x.md#3').
CREATE OR REPLACE MACRO more_like(chunk_id, k := 10, pool := 750) AS TABLE
    SELECT v.* FROM vector_query((SELECT embedding FROM documents WHERE node_id = chunk_id), k := k + 1, pool := pool) AS v
    WHERE v.node_id <> chunk_id
    ORDER BY v.score DESC, v.doc_id, v.chunk_index
    LIMIT k;
