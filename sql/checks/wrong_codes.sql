-- The sign words are those of the vector.
SELECT node_id FROM documents
WHERE false
    OR w0 <> sign_words(embedding)[1]
    OR w1 <> sign_words(embedding)[2]
    OR w2 <> sign_words(embedding)[3]
ORDER BY node_id;
