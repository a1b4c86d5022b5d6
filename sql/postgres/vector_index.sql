-- How many chunks there are, and whether their vectors have the index that indexes.sql makes.
SELECT coalesce(sum(n), 0)::bigint, to_regclass('chunks_embedding') IS NOT NULL FROM lengths;
