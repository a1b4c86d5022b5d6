-- Removes a store out of the schema that is searched first, and nothing else that is there.
DROP TABLE chunks, documents, collections, embedding_metadata, migrations;
DROP FUNCTION joined_words(text[]);
