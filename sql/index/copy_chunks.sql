-- The chunks of the attached database work, their sign words recomputed from their vectors.
INSERT INTO documents BY NAME
SELECT node_id, text, embedding, metadata_, doc_id, collection, chunk_index, i_start, i_end, page, heading_path, tags, checksum, shown, rid
    , sign_words(embedding)[1] AS w0
    , sign_words(embedding)[2] AS w1
    , sign_words(embedding)[3] AS w2
FROM work.main.documents
ORDER BY rid;
