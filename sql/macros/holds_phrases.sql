-- Whether a text or its heading path holds each of the phrases: folded words with one blank around and between them.
CREATE OR REPLACE MACRO holds_phrases(chunk_text, chunk_heading_path, phrases) AS
    list_transform(
        [[' ' || array_to_string(fts_main_documents.plain_words(chunk_text), ' ') || ' ',
          ' ' || array_to_string(fts_main_documents.plain_words(array_to_string(chunk_heading_path, ' ')), ' ') || ' ']],
        lambda fields: length(list_filter(phrases, lambda phrase: contains(fields[1], phrase) OR contains(fields[2], phrase))))[1]
    = length(phrases);
