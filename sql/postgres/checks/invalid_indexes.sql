-- Every index is valid; one that was interrupted while it was built is not: REINDEX INDEX makes it anew.
SELECT i.indexrelid::regclass::text
FROM pg_index AS i JOIN pg_class AS c ON c.oid = i.indexrelid
WHERE NOT i.indisvalid AND c.relnamespace = quote_ident(current_schema())::regnamespace
ORDER BY 1;
