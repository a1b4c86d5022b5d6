-- How many chunks there are, the greatest rid, and whether somebody made a graph of their vectors.
SELECT coalesce(sum(n), 0)::bigint, (SELECT coalesce(max(rid), 0) FROM chunks),
       to_regclass(format('%%I.chunks_embedding', current_schema())) IS NOT NULL
FROM lengths;
