-- Where the postings of new chunks are collected, until all of them can be written in the order of their terms.
CREATE OR REPLACE TEMP TABLE staged_postings (termid INTEGER, rid INTEGER, tf INTEGER, heading_tf INTEGER);

-- In how many of the new chunks each word is, for each part of them.
CREATE OR REPLACE TEMP TABLE staged_words (word VARCHAR, df INTEGER);
