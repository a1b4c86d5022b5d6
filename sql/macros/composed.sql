-- A text with its accents composed (NFC), the ligatures of typesetting spelled out and without the characters that only
-- say where a line may break (soft hyphen, zero width space and joiners), so that each way of writing gives the same word.
CREATE OR REPLACE MACRO fts_main_documents.composed(s) AS
    CASE WHEN strlen(s) = length(s) THEN s
         ELSE replace(replace(replace(replace(replace(
            translate(nfc_normalize(s), chr(173) || chr(8203) || chr(8204) || chr(8205) || chr(8288), ''),
            'ﬁ', 'fi'), 'ﬂ', 'fl'), 'ﬃ', 'ffi'), 'ﬄ', 'ffl'), 'ﬀ', 'ff')
         END;
