-- The chunks of documents from which their visible text is computed.
SELECT rid, doc_id, text, i_start, i_end FROM documents WHERE doc_id IN (SELECT unnest($doc_ids)) ORDER BY doc_id, chunk_index, rid;
