-- The chunks that are about to be removed: those of the documents $doc_ids.
CREATE OR REPLACE TEMP TABLE staged_chunks AS SELECT rid FROM documents WHERE doc_id IN (SELECT unnest($doc_ids));
