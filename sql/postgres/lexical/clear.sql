-- Empties the index of words.
DELETE FROM postings;

DELETE FROM lengths;
