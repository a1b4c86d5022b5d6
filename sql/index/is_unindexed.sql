-- A row where there are chunks, and not all of them are in the lexical index.
SELECT 1 WHERE (SELECT count(*) FROM documents) <> (SELECT count(*) FROM fts_main_documents.docs);
