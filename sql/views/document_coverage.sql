-- How much of each document is in its chunks, in characters that are not blank; what chunks share counts once.
CREATE OR REPLACE VIEW document_coverage AS
WITH placed AS (
    SELECT d.doc_id, d.text, d.i_start, d.i_end,
           greatest(d.i_start, s.body_start, max(d.i_end) OVER (
               PARTITION BY d.doc_id ORDER BY d.i_start, d.i_end, d.chunk_index
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS new_from
    FROM documents AS d JOIN source_documents AS s ON s.doc_id = d.doc_id
),
covered AS (
    SELECT doc_id, count(*) AS chunks, round(avg(length(text)), 1) AS mean_characters,
           CASE WHEN count(i_start) = count(*) THEN coalesce(sum(length(regexp_replace(
               right(text, i_end - new_from), '[\s\x0b\x1c-\x1f\x85\p{Z}]+', '', 'g'))) FILTER (i_end > new_from), 0) END AS covered
    FROM placed
    GROUP BY doc_id
),
bodies AS (
    SELECT doc_id, length(regexp_replace(text[body_start + 1:], '[\s\x0b\x1c-\x1f\x85\p{Z}]+', '', 'g')) AS characters
    FROM source_documents
)
SELECT b.doc_id, coalesce(c.chunks, 0) AS chunks, c.mean_characters, b.characters,
       CAST(CASE WHEN c.doc_id IS NULL THEN 0 ELSE c.covered END AS BIGINT) AS covered,
       round(CASE WHEN c.doc_id IS NULL THEN 0 ELSE c.covered END / nullif(b.characters, 0), 4) AS coverage
FROM bodies AS b LEFT JOIN covered AS c ON c.doc_id = b.doc_id
ORDER BY coverage, b.doc_id;
