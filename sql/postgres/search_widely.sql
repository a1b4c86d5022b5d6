-- Lets index searches of this transaction go on until enough rows pass the filters. Compiling a statement, or starting processes for
-- parts of it, takes as long as a search.
SELECT set_config('hnsw.ef_search', %(ef)s::text, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('jit', 'off', true), set_config('max_parallel_workers_per_gather', '0', true);
