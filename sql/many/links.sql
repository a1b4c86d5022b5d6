-- The links of documents.
SELECT * FROM document_links WHERE doc_id IN (SELECT unnest($doc_ids)) ORDER BY doc_id, link_index;
