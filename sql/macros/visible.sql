-- The text of a chunk as a reader of the page sees it: what is embedded, indexed and shown. Its second argument is the column shown.
CREATE OR REPLACE MACRO visible(chunk_text, chunk_shown) AS coalesce(replace(chunk_shown, chr(173), ''), chunk_text);
