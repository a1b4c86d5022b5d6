-- The stem of a word in Greek, Cyrillic, Arabic or Devanagari letters, by its last letter; NULL where the stemmer of the file
-- decides: for other words, and where it is that of another language in these letters.
CREATE OR REPLACE MACRO fts_main_documents.script_stem(word, stemmer) AS
    CASE WHEN strlen(word) = length(word) OR stemmer = 'none' THEN NULL
         WHEN ord(word[-1:]) BETWEEN 880 AND 1023 THEN fts_main_documents.greek_stem(word)
         WHEN ord(word[-1:]) BETWEEN 1024 AND 1327 AND stemmer <> 'serbian' THEN fts_main_documents.russian_stem(word)
         WHEN ord(word[-1:]) BETWEEN 1536 AND 1791 AND stemmer <> 'persian' THEN fts_main_documents.arabic_stem(word)
         WHEN ord(word[-1:]) BETWEEN 2304 AND 2431 AND stemmer <> 'nepali' THEN fts_main_documents.hindi_stem(word)
         END;
