-- Looks names up in the schema of a store, in that of pgvector, which may be in any schema, and in public.
SELECT set_config('search_path', concat_ws(', ', quote_ident(%(schema)s), (
    SELECT quote_ident(n.nspname) FROM pg_extension AS e JOIN pg_namespace AS n ON n.oid = e.extnamespace
    WHERE e.extname = 'vector'
), 'public'), %(local)s);
