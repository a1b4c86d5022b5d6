-- Attaches a file; again it does nothing. The second statement, which prints nothing, fails where another file has the name.
ATTACH IF NOT EXISTS 'kb.duckdb' AS "kb" (READ_ONLY);
SET VARIABLE "kb_path" = (
    SELECT CASE WHEN path = 'kb.duckdb' THEN path
           ELSE error('Another file is attached by this name: ' || path || '. DETACH it first.') END
    FROM duckdb_databases() WHERE lower(database_name) = lower('kb'));
