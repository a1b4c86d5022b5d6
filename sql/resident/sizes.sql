-- How much there is to be read into memory: chunks, bytes of their names, postings, and bytes of the terms.
SELECT
    (SELECT count(*) FROM documents),
    (SELECT coalesce(sum(strlen(node_id) + strlen(doc_id) + 20), 0) FROM documents),
    (SELECT count(*) FROM fts_main_documents.postings),
    (SELECT coalesce(sum(strlen(term) + 16), 0) FROM fts_main_documents.dict);
