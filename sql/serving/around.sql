-- The chunks that touch stretches of documents: $places names each, $doc_ids, $lows and $highs say where it is (four lists).
SELECT w.place, d.chunk_index, d.i_start, d.i_end, d.heading_path, d.shown
FROM documents AS d
JOIN (
    SELECT unnest($places) AS place, unnest($doc_ids) AS doc_id, unnest($lows) AS low, unnest($highs) AS high
) AS w ON d.doc_id = w.doc_id AND d.i_end >= w.low AND d.i_start <= w.high
ORDER BY w.place, d.chunk_index;
