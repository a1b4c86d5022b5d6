-- Lets index searches of this transaction go on until enough rows pass the filters; compiling a statement takes longer than one.
SELECT set_config('hnsw.ef_search', %(ef)s::text, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('jit', 'off', true);
