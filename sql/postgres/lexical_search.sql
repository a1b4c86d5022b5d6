-- The k chunks that a tsquery ranks highest (ts_rank_cd: cover density; Clarke, Cormack & Tudhope, Relevance Ranking for One to
-- Three Term Queries, 1999) among those that match another and meet conditions. The weights are those of D, C, B and A: text is D,
-- headings are A; with labels only what has one of them is looked at.
SELECT rid, doc_id, chunk_index, node_id, round(score::numeric, 9)::double precision AS score
FROM (
    SELECT rid, doc_id, chunk_index, node_id,
           ts_rank_cd(%(weights)s::real[], lexemes, %(ranked)s::tsquery, %(normalization)s) AS score
    FROM chunks
    WHERE lexemes @@ %(matched)s::tsquery AND (/* conditions */ true)
      AND (%(labels)s::"char"[] IS NULL OR ts_filter(lexemes, %(labels)s::"char"[]) @@ %(matched)s::tsquery)
) AS found
WHERE score > 0 -- a word that stands only where it counts nothing, such as in headings, is none
ORDER BY score DESC, doc_id, chunk_index
LIMIT %(k)s;
