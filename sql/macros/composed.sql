-- A text with its accents composed (NFC), so that both ways of writing a letter give the same word.
CREATE OR REPLACE MACRO fts_main_documents.composed(s) AS
    CASE WHEN strlen(s) = length(s) THEN s ELSE nfc_normalize(s) END;
