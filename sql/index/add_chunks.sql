-- Adds the staged words (see stage_tokens.sql) of the chunks in staged_chunks.

INSERT INTO staged_words SELECT word, count(*) FROM staged_tokens GROUP BY word;

-- Terms that are new get the next numbers, in the order of the alphabet.
INSERT INTO fts_main_documents.dict
SELECT (SELECT coalesce(max(termid), 0) FROM fts_main_documents.dict) + row_number() OVER (ORDER BY term), term, 0
FROM (SELECT DISTINCT term FROM fts_main_documents.words ANTI JOIN fts_main_documents.dict USING (term))
ORDER BY term;

-- The lengths of the chunks; a chunk without words has length 0 and still counts as a chunk.
INSERT INTO fts_main_documents.docs
SELECT d.rid, coalesce(sum(t.len), 0), coalesce(sum(t.heading_len), 0)
FROM staged_chunks AS d LEFT JOIN staged_tokens AS t ON t.rid = d.rid
GROUP BY d.rid
ORDER BY d.rid;

-- Words to terms: one row per term and staged chunk.
INSERT INTO staged_postings
SELECT d.termid, t.rid, CAST(sum(t.tf) AS INTEGER), CAST(sum(t.heading_tf) AS INTEGER)
FROM staged_tokens AS t
JOIN fts_main_documents.words AS w ON w.word = t.word
JOIN fts_main_documents.dict AS d ON d.term = w.term
GROUP BY d.termid, t.rid;
