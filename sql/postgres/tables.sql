-- The table of chunks of a schema, and which of these tables the schema lacks: where a name is not there, another schema of the
-- search path may have one.
SELECT to_regclass(format('%%I.chunks', %(schema)s::text))::oid,
       ARRAY(SELECT t.name FROM unnest(%(tables)s::text[]) AS t(name)
             WHERE to_regclass(format('%%I.%%I', %(schema)s::text, t.name)) IS NULL ORDER BY t.name);
