-- The lexical index of a DuckDB file. Words, terms and postings are made outside of SQL by the same statements as there, see
-- sqlrag/engines/postgres/lexical.py. All of it is only ever inserted: what was removed is inserted with a negative n, so that
-- no two writers wait for each other, and sums are true at every commit. Now and then many rows become few. It runs again where the
-- index is made anew.
ALTER TABLE chunks DROP COLUMN IF EXISTS lexemes;
DO $$
BEGIN -- of this schema only: others may have functions of these names
    EXECUTE format('DROP FUNCTION IF EXISTS %1$I.stemmed(text), %1$I.folded(text), %1$I.joined_words(text[]), '
        '%1$I.heading_text(text[], integer, jsonb, text[])', current_schema());
END $$;
DELETE FROM embedding_metadata WHERE key = 'text_search_configuration';

-- A word as the index writes it, the term that it counts as, and a block of n chunks that hold it, or held it until they were
-- removed (n is negative). block has for each of them its rid, the occurrences in text and in headings, and the lengths of both,
-- as whole numbers of 4, 2, 2, 2 and 2 bytes, or of 8 each where one is too great for that, little-endian.
CREATE TABLE IF NOT EXISTS postings (
    term text COLLATE "C" NOT NULL,
    word text COLLATE "C" NOT NULL,
    n integer NOT NULL,
    block bytea NOT NULL
);
ALTER TABLE postings ALTER COLUMN block SET STORAGE EXTERNAL;

-- A word may be longer than a key of an index.
CREATE INDEX IF NOT EXISTS postings_term ON postings (left(term, 100));
CREATE INDEX IF NOT EXISTS postings_word ON postings (left(word, 100));
CREATE INDEX IF NOT EXISTS postings_ending ON postings (right(word, 2));

-- n chunks that were written or removed (n, len and heading_len are negative), the sums of their lengths, and for each its rid,
-- its lengths and the hash of its place by which samples are taken, as whole numbers of 8 bytes.
CREATE TABLE IF NOT EXISTS lengths (n integer NOT NULL, len bigint NOT NULL, heading_len bigint NOT NULL, block bytea NOT NULL);
ALTER TABLE lengths ALTER COLUMN block SET STORAGE EXTERNAL;

-- Ignored in a query that has other words; edit it as you like.
CREATE TABLE IF NOT EXISTS stopwords (word text COLLATE "C" PRIMARY KEY);
