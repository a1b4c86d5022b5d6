-- Removes the chunks in staged_chunks, whose words are staged (see stage_tokens.sql), from the index and the chunk table.

-- A word is removed with the last chunk that holds it, so that the index equals a rebuilt one.
UPDATE fts_main_documents.words AS w SET df = w.df - n.df
FROM (SELECT word, count(*) AS df FROM staged_tokens GROUP BY word) AS n
WHERE n.word = w.word;

DELETE FROM fts_main_documents.words WHERE df <= 0;

UPDATE fts_main_documents.dict AS d SET df = d.df - n.df
FROM (SELECT termid, count(*) AS df FROM fts_main_documents.postings WHERE rid IN (FROM staged_chunks) GROUP BY termid) AS n
WHERE n.termid = d.termid;

DELETE FROM fts_main_documents.postings WHERE rid IN (FROM staged_chunks);

DELETE FROM fts_main_documents.docs WHERE rid IN (FROM staged_chunks);

-- So does a term.
DELETE FROM fts_main_documents.dict WHERE df <= 0;

DELETE FROM documents WHERE rid IN (FROM staged_chunks);
