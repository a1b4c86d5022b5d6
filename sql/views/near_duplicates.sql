-- Pairs of chunks that are nearly the same: of one text, or with a cosine of 0.95 or more, the most similar first.
-- Pairs are searched among chunks whose sign codes agree in a band of 16 bits, of the first 24 bands, so that not all pairs are
-- compared; see Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4. The first chunk of a text represents
-- its copies, each of which is paired with that one alone. A damaged vector (not finite, or with a NULL in it) is skipped.
CREATE OR REPLACE VIEW near_duplicates AS
WITH copies AS (
    SELECT rid, first_value(rid) OVER (PARTITION BY visible(text, shown) ORDER BY doc_id, chunk_index) AS first_rid FROM documents
),
firsts AS (
    SELECT rid, len(embedding) AS dimensions
        , w0
        , w1
        , w2
    FROM documents WHERE rid IN (SELECT first_rid FROM copies)
),
-- The list of one has the number of the word, from 1; a band behind the last dimension is ignored.
bands AS (
    SELECT *, CAST(0 AS INTEGER) AS band FROM firsts WHERE false
    UNION ALL SELECT firsts.*, CAST(65536 * (8 * word + place) + (w0 >> (112 - 16 * place) & 65535) AS INTEGER) FROM firsts, unnest([1]) AS words(word), range(8) AS places(place) WHERE word <= 3 AND 128 * (word - 1) + 16 * place < dimensions
    UNION ALL SELECT firsts.*, CAST(65536 * (8 * word + place) + (w1 >> (112 - 16 * place) & 65535) AS INTEGER) FROM firsts, unnest([2]) AS words(word), range(8) AS places(place) WHERE word <= 3 AND 128 * (word - 1) + 16 * place < dimensions
    UNION ALL SELECT firsts.*, CAST(65536 * (8 * word + place) + (w2 >> (112 - 16 * place) & 65535) AS INTEGER) FROM firsts, unnest([3]) AS words(word), range(8) AS places(place) WHERE word <= 3 AND 128 * (word - 1) + 16 * place < dimensions
),
-- At a cosine of 0.95 signs differ in a tenth of the dimensions on average; with more than this, practically no pair reaches it.
pairs AS (
    SELECT DISTINCT a.rid, b.rid AS other_rid, false AS same_text
    FROM bands AS a JOIN bands AS b ON a.band = b.band AND a.rid < b.rid
    WHERE 6 * (CAST(0 AS INTEGER)
            + bit_count(xor(a.w0, b.w0))
            + bit_count(xor(a.w1, b.w1))
            + bit_count(xor(a.w2, b.w2))
        ) <= a.dimensions + 30
    UNION ALL
    SELECT first_rid, rid, true FROM copies WHERE rid <> first_rid
),
compared AS (
    SELECT p.same_text, (a.doc_id, a.chunk_index) < (b.doc_id, b.chunk_index) AS a_is_first,
           a.node_id AS a_node, a.doc_id AS a_doc, b.node_id AS b_node, b.doc_id AS b_doc,
           round(CAST(TRY(array_inner_product(a.embedding, b.embedding)) AS DOUBLE), 6) AS product
    FROM pairs AS p JOIN documents AS a ON a.rid = p.rid JOIN documents AS b ON b.rid = p.other_rid
)
SELECT CASE WHEN a_is_first THEN a_node ELSE b_node END AS node_id,
       CASE WHEN a_is_first THEN b_node ELSE a_node END AS other_node_id,
       CASE WHEN a_is_first THEN a_doc ELSE b_doc END AS doc_id,
       CASE WHEN a_is_first THEN b_doc ELSE a_doc END AS other_doc_id,
       least(1, product) AS cosine, same_text
FROM compared
WHERE isfinite(product) AND (same_text OR product >= 0.95)
ORDER BY cosine DESC, node_id, other_node_id;
