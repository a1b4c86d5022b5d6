-- In DuckDB: adds the staged words (see index/stage_tokens) of the chunks in staged_chunks, counted, and the length of each chunk. A
-- chunk without words has length 0 and still counts as a chunk.
INSERT INTO counted_words
SELECT word, rid, tf, heading_tf, sum(len) OVER (PARTITION BY rid), sum(heading_len) OVER (PARTITION BY rid)
FROM staged_tokens;

INSERT INTO measured_chunks
SELECT d.rid, coalesce(sum(t.len), 0), coalesce(sum(t.heading_len), 0), hash(any_value(d.doc_id), any_value(d.chunk_index))
FROM documents AS d LEFT JOIN staged_tokens AS t ON t.rid = d.rid
WHERE d.rid IN (FROM staged_chunks)
GROUP BY d.rid;
