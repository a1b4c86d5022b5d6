-- What each of the terms adds to the BM25 score of each chunk that holds it, in billionths: rid, termid, contribution.
-- The terms are given as lists: their termid, their document frequency, and by what to multiply (boosts, 1 unless given).
-- totals are the number of chunks and their average lengths, of text and heading path: those of the file unless
-- given, as for a file that is one of several which are searched as one.
-- Robertson & Zaragoza, The Probabilistic Relevance Framework: BM25 and Beyond, 2009, with BM25F's weighted fields: a
-- term counts text_weight * tf + heading_weight * heading_tf, and lengths likewise; idf is Lucene's, never negative.
-- A contribution is rounded to 1e-9 before it is added: such sums are exact in a DOUBLE, so no order of adding, and
-- no number of threads, can change a score.
CREATE OR REPLACE MACRO bm25_contributions(termids, dfs, k1 := 1.2, b := 0.75, text_weight := 1.0, heading_weight := 3.0,
        boosts := NULL, totals := NULL) AS TABLE
    WITH weighted AS (
        SELECT t.termid,
               1e9 * coalesce(t.boost, 1) * (k1 + 1) * ln(1 + (s.num_docs - t.df + 0.5) / (t.df + 0.5)) AS weight,
               k1 * (1 - b) AS base,
               k1 * b / greatest(s.text_weight * s.avg_len + s.heading_weight * s.avg_heading_len, 1) AS slope,
               s.text_weight,
               s.heading_weight
        FROM (SELECT unnest(termids) AS termid, unnest(dfs) AS df, unnest(CAST(boosts AS DOUBLE[])) AS boost) AS t,
             (SELECT coalesce(CAST(totals AS DOUBLE[])[1], f.num_docs) AS num_docs, coalesce(CAST(totals AS DOUBLE[])[2], f.avg_len) AS avg_len,
                     coalesce(CAST(totals AS DOUBLE[])[3], f.avg_heading_len) AS avg_heading_len,
                     text_weight AS text_weight, heading_weight AS heading_weight
              FROM fts_main_documents.stats AS f) AS s
    )
    SELECT p.rid, p.termid,
           round(w.weight * (w.text_weight * p.tf + w.heading_weight * p.heading_tf)
               / (w.text_weight * p.tf + w.heading_weight * p.heading_tf + w.base
                  + w.slope * (w.text_weight * p.len + w.heading_weight * p.heading_len))) AS contribution
    FROM fts_main_documents.postings AS p JOIN weighted AS w ON w.termid = p.termid
    WHERE w.text_weight * p.tf + w.heading_weight * p.heading_tf > 0;
