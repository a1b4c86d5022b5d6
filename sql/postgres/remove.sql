-- Removes a store from the schema that is searched first, and nothing else.
DROP TABLE IF EXISTS chunks, documents, collections, embedding_metadata, migrations;
DROP TABLE IF EXISTS postings, lengths, stopwords; -- a store of an earlier sqlrag has none
DROP FUNCTION IF EXISTS joined_words(text[]), stemmed(text), folded(text), heading_text(text[], integer, jsonb, text[]); -- but these
