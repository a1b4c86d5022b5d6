-- The heading that each chunk stands under, with its document.
SELECT DISTINCT heading_path[-1] AS heading, doc_id FROM documents WHERE len(heading_path) > 0 ORDER BY heading, doc_id;
