-- How often a chunk holds each of the terms, and what that adds to its BM25 score; see bm25_contributions.
SELECT t.termid, d.term, coalesce(p.tf, 0) AS tf, coalesce(p.heading_tf, 0) AS heading_tf,
       coalesce(c.contribution, 0) / 1e9 AS contribution
FROM (SELECT unnest(CAST($termids AS INTEGER[])) AS termid) AS t
JOIN fts_main_documents.dict AS d ON d.termid = t.termid
LEFT JOIN fts_main_documents.postings AS p ON p.termid = t.termid AND p.rid = $rid
LEFT JOIN bm25_contributions($termids, $dfs, k1 := $k1, b := $b, text_weight := $text_weight,
    heading_weight := $heading_weight, boosts := $boosts) AS c ON c.termid = t.termid AND c.rid = $rid
ORDER BY d.term;
