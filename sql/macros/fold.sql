-- A word of a composed text as the lexical index writes it: lower case; Latin and Greek without accents. Other scripts keep
-- their marks, which are letters there.
CREATE OR REPLACE MACRO fts_main_documents.fold(word) AS
    CASE WHEN strlen(word) = length(word) THEN lower(word)
         WHEN regexp_matches(word, '\p{Latin}|\p{Greek}') THEN strip_accents(lower(word))
         ELSE lower(word)
         END;
