-- From schema 4 to schema 5: what is indexed is the text as a reader of the page sees it. shown and shown_end are computed from the
-- stored texts when the rows are copied into new tables at the end, and the words are indexed again. The vectors stay; where
-- they were made of texts with markup, vectors_with_markup says so.
ALTER TABLE documents ADD COLUMN IF NOT EXISTS shown VARCHAR;

ALTER TABLE source_documents ADD COLUMN IF NOT EXISTS shown_end INTEGER;

ALTER TABLE IF EXISTS document_links ADD COLUMN IF NOT EXISTS note VARCHAR;
