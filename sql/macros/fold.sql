-- A word as the lexical index writes it: lower case; Latin and Greek without accents, the sigma at the end of a word as any
-- other; Russian yo as ye; Arabic and Hebrew without vowel points. Other scripts keep their marks, which are letters there.
CREATE OR REPLACE MACRO fts_main_documents.fold(word) AS
    CASE WHEN strlen(word) = length(word) THEN lower(word)
         WHEN regexp_matches(word, '\p{Latin}|\p{Greek}') THEN replace(strip_accents(lower(word)), 'ς', 'σ')
         ELSE regexp_replace(replace(lower(word), 'ё', 'е'), '[\x{591}-\x{5bd}\x{5bf}-\x{5c7}\x{640}\x{64b}-\x{65f}\x{670}]', '', 'g')
         END;
