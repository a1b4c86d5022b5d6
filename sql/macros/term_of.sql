-- The term that a word counts as. A stop word is a term of its own, which no other word shares: the term of "one" is "on-".
-- Of the stemmers, porter runs in SQL, and those of scripts do; by another, a word in Latin letters stays as it is here.
CREATE OR REPLACE MACRO fts_main_documents.term_of(word, stemmer) AS
    list_transform(
        [coalesce(fts_main_documents.script_stem(word, stemmer), CASE WHEN stemmer = 'porter' THEN fts_main_documents.porter_stem(word) ELSE word END)],
        lambda stem: CASE
            WHEN list_contains(fts_main_documents.own_terms(), word) THEN word
            WHEN list_contains(fts_main_documents.own_terms(), stem) THEN stem || '-'
            ELSE stem END)[1];
