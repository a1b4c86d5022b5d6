-- Takes all chunks of the documents $doc_ids out of the lexical index and the chunk table.

-- The chunks of the documents that are about to be replaced or deleted.
CREATE OR REPLACE TEMP TABLE removed AS SELECT rid FROM documents WHERE doc_id IN (SELECT unnest($doc_ids));

UPDATE fts_main_documents.dict AS d SET df = d.df - n.df
FROM (SELECT termid, count(*) AS df FROM fts_main_documents.postings WHERE rid IN (FROM removed) GROUP BY termid) AS n
WHERE n.termid = d.termid;

DELETE FROM fts_main_documents.postings WHERE rid IN (FROM removed);

DELETE FROM fts_main_documents.docs WHERE rid IN (FROM removed);

-- Terms that no chunk holds any more, so that the index equals one built afresh.
DELETE FROM fts_main_documents.dict WHERE df = 0;

DELETE FROM fts_main_documents.words WHERE term NOT IN (SELECT term FROM fts_main_documents.dict);

DELETE FROM documents WHERE rid IN (FROM removed);
