-- A row where there are chunks, and the lexical index has not met all of them.
SELECT 1 WHERE (SELECT count(*) FROM documents) <> (SELECT count(*) FROM fts_main_documents.docs);
