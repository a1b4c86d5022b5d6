-- The memory that this transaction may take to build an index; the server's own limit is meant for small ones.
SELECT set_config('maintenance_work_mem', %(megabytes)s::text || 'MB', true);
