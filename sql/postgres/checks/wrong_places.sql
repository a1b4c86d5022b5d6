-- The chunks of a document are numbered from 0 on without a gap.
SELECT doc_id FROM chunks GROUP BY doc_id HAVING min(chunk_index) <> 0 OR max(chunk_index) <> count(*) - 1 ORDER BY doc_id;
