-- The chunks that touch stretches of documents: places names each, doc_ids, lows and highs say where it is (four lists).
SELECT w.place, c.chunk_index, c.i_start, c.i_end, c.heading_path, c.shown
FROM chunks AS c
JOIN unnest(%(places)s::int8[], %(doc_ids)s::text[], %(lows)s::int8[], %(highs)s::int8[]) AS w (place, doc_id, low, high)
    ON c.doc_id = w.doc_id AND c.i_end >= w.low AND c.i_start <= w.high
ORDER BY w.place, c.chunk_index;
