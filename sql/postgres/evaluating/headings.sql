-- The heading that each chunk stands under, with its document.
SELECT DISTINCT heading_path[cardinality(heading_path)] AS heading, doc_id FROM chunks WHERE cardinality(heading_path) > 0
ORDER BY heading, doc_id;
