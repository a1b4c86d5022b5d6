-- Removes a store from the schema that is searched first, and nothing else.
DROP TABLE chunks, documents, collections, embedding_metadata, migrations;
DROP FUNCTION joined_words(text[]);
DROP FUNCTION IF EXISTS stemmed(text); -- a store of an earlier sqlrag has none
DROP FUNCTION IF EXISTS folded(text); -- a store of an earlier sqlrag has none
DROP FUNCTION IF EXISTS heading_text(text[], integer, jsonb, text[]); -- a store of an earlier sqlrag has none
