-- The staged postings of a range of terms. Clustered by term, so that a query reads only the row groups of its terms.
INSERT INTO fts_main_documents.postings
SELECT p.termid, p.rid, p.tf, p.heading_tf, l.len, l.heading_len
FROM staged_postings AS p JOIN fts_main_documents.docs AS l ON l.rid = p.rid
WHERE p.termid BETWEEN $low AND $high
ORDER BY p.termid, p.rid;
