-- The links of the Markdown documents in the order of the text.
CREATE OR REPLACE VIEW links AS
SELECT l.doc_id AS source, l.target, l.label, l.url, l.fragment, l.target IS NULL AS external,
       l.target IS NOT NULL AND s.doc_id IS NULL AS broken, l.link_index, l.i_start, l.i_end
FROM document_links AS l LEFT JOIN source_documents AS s ON s.doc_id = l.target
ORDER BY l.doc_id, l.link_index;
