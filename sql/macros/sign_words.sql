-- The signs of a vector as words of 128 bits; a dimension of zero or more is a 1.
CREATE OR REPLACE MACRO sign_words(vector) AS
    pack_words(list_transform(CAST(vector AS FLOAT[]), lambda x: x >= 0));
