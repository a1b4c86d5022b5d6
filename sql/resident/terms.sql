-- Every term of the lexical index, in the order of the alphabet.
SELECT term, termid, df FROM fts_main_documents.dict ORDER BY term;
