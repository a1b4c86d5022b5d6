-- A word as the lexical index writes it: lower case; Latin and Greek without accents; Russian yo as ye.
-- Other scripts keep their marks, which are letters there.
CREATE OR REPLACE MACRO fts_main_documents.fold(word) AS
    CASE WHEN strlen(word) = length(word) THEN lower(word)
         WHEN regexp_matches(word, '\p{Latin}|\p{Greek}') THEN strip_accents(lower(word))
         ELSE replace(lower(word), 'ё', 'е') END;
