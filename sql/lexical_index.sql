-- The lexical index: plain tables in the schema that DuckDB's fts extension would use, so that its names keep working.
CREATE SCHEMA fts_main_documents;

-- One row per chunk: its length in tokens. The averages that BM25 needs are taken from here by the view stats.
CREATE TABLE fts_main_documents.docs (rid INTEGER NOT NULL, len INTEGER NOT NULL, heading_len INTEGER NOT NULL);

-- Word as it is written (lower case, accents stripped) to the term it counts as (its stem); df is the number of chunks
-- that hold it, so that it is removed with the last of them.
CREATE TABLE fts_main_documents.words (word VARCHAR NOT NULL, term VARCHAR NOT NULL, df INTEGER NOT NULL);

-- One row per term; df is the number of chunks that hold it.
CREATE TABLE fts_main_documents.dict (termid INTEGER NOT NULL, term VARCHAR PRIMARY KEY, df INTEGER NOT NULL);

-- One row per term and chunk. The lengths are repeated here because a join to docs costs as much as the scoring.
CREATE TABLE fts_main_documents.postings (
    termid INTEGER NOT NULL,
    rid INTEGER NOT NULL,
    tf INTEGER NOT NULL,
    heading_tf INTEGER NOT NULL,
    len INTEGER NOT NULL,
    heading_len INTEGER NOT NULL
);

-- Ignored in a query that has other words; edit it as you like.
CREATE TABLE fts_main_documents.stopwords (word VARCHAR PRIMARY KEY);
INSERT INTO fts_main_documents.stopwords
SELECT unnest(string_split(
    'a about an and are as at be been but by can do does for from had has have how i if in into is it '
    || 'its me my no not of on or our s should so such than that the their them then there these they this '
    || 'to was we were what when where which who why will with would you your', ' '));

-- A view, so that it cannot go stale.
CREATE VIEW fts_main_documents.stats AS
SELECT count(*) AS num_docs, coalesce(avg(len), 0) AS avg_len, coalesce(avg(heading_len), 0) AS avg_heading_len
FROM fts_main_documents.docs;
