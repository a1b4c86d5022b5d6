-- The sign words of every chunk, recomputed from its vector.
UPDATE documents SET rid = rid
    , w0 = sign_words(embedding)[1]
    , w1 = sign_words(embedding)[2]
    , w2 = sign_words(embedding)[3]
;
