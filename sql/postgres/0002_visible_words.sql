-- What is indexed is the text as a reader of the page sees it: shown, as in a DuckDB file, NULL where that is the content.
ALTER TABLE chunks ADD COLUMN shown text;
