-- How much of each document is in its chunks, in characters that are not blank; what chunks share counts once. Between the chunks of a
-- file that are all there stands markup alone, and so it does behind the last word that a reader sees: that does not count.
CREATE OR REPLACE VIEW document_coverage AS
WITH placed AS (
    SELECT d.doc_id, d.chunk_index, d.text, d.i_start, d.i_end,
           greatest(d.i_start, s.body_start, max(d.i_end) OVER (
               PARTITION BY d.doc_id ORDER BY d.i_start, d.i_end, d.chunk_index
               ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS new_from
    FROM documents AS d JOIN source_documents AS s ON s.doc_id = d.doc_id
),
covered AS (
    SELECT doc_id, count(*) AS chunks, max(chunk_index) AS last_index, max(i_end) AS last_end,
           round(avg(length(text)), 1) AS mean_characters,
           CASE WHEN count(i_start) = count(*) THEN coalesce(sum(length(regexp_replace(
               right(text, i_end - new_from), '[\s\x0b\x1c-\x1f\x85\p{Z}]+', '', 'g'))) FILTER (i_end > new_from), 0) END AS covered
    FROM placed
    GROUP BY doc_id
),
bodies AS (
    SELECT s.doc_id, c.chunks, c.mean_characters, CASE WHEN c.doc_id IS NULL THEN 0 ELSE c.covered END AS covered,
           s.chunk_policy IS NOT NULL AND c.covered IS NOT NULL AND c.chunks = c.last_index + 1 AS is_whole,
           length(regexp_replace(substring(
               left(s.text, coalesce(s.shown_end, length(s.text))),
               CASE WHEN is_whole THEN greatest(s.body_start, c.last_end) ELSE s.body_start END + 1),
               '[\s\x0b\x1c-\x1f\x85\p{Z}]+', '', 'g')) + CASE WHEN is_whole THEN c.covered ELSE 0 END AS characters
    FROM source_documents AS s LEFT JOIN covered AS c ON c.doc_id = s.doc_id
)
SELECT doc_id, coalesce(chunks, 0) AS chunks, mean_characters, CAST(characters AS BIGINT) AS characters,
       CAST(covered AS BIGINT) AS covered, round(covered / nullif(characters, 0), 4) AS coverage
FROM bodies
ORDER BY coverage, doc_id;
