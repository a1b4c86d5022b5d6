-- The sign words are those of the vector.
SELECT node_id FROM documents
WHERE false
    OR w0 <> sign_words(embedding)[1]
    OR w1 <> sign_words(embedding)[2]
    OR w2 <> sign_words(embedding)[3]
    OR w3 <> sign_words(embedding)[4]
    OR w4 <> sign_words(embedding)[5]
    OR w5 <> sign_words(embedding)[6]
ORDER BY node_id;
