-- Every word that a text is found by: its plain words, then the parts of compound names.
CREATE OR REPLACE MACRO fts_main_documents.tokenize(s) AS
    fts_main_documents.plain_words(s) || fts_main_documents.compound_parts(s);
