-- Every chunk with the key by which its vector is read, in reading order.
SELECT node_id, doc_id, rid FROM documents ORDER BY doc_id, chunk_index;
