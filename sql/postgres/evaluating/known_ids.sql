-- What judgements can name.
SELECT doc_id, node_id FROM chunks;
