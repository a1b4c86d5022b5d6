-- The k chunks that the words of a question rank highest among those that match a tsquery and meet conditions. Each word adds its
-- ts_rank_cd (for one word its occurrences by their weights; 32 makes r / (r + 1) of it, so that the tenth adds less than the
-- first) times its inverse document frequency, as in BM25. The weights are those of D, C, B and A: text is D,
-- headings are A; with labels only what has one of them is searched.
WITH words AS MATERIALIZED (
    SELECT query::tsquery AS query, idf FROM unnest(%(words)s::text[], %(idfs)s::double precision[]) AS given(query, idf)
)
SELECT rid, doc_id, chunk_index, node_id, round(score::numeric, 9)::double precision AS score
FROM (
    SELECT rid, doc_id, chunk_index, node_id,
           (SELECT sum(w.idf * ts_rank_cd(%(weights)s::real[], lexemes, w.query, 32)) FROM words AS w) AS score
    FROM chunks
    WHERE lexemes @@ %(matched)s::tsquery AND (/* conditions */ true)
      AND (%(labels)s::"char"[] IS NULL OR ts_filter(lexemes, %(labels)s::"char"[]) @@ %(matched)s::tsquery)
) AS found
WHERE score > 0 -- a word that occurs only where it has no weight, such as in headings, does not match
ORDER BY score DESC, doc_id, chunk_index
LIMIT %(k)s;
