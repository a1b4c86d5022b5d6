-- The chunk whose vector serves each of the texts in wanted_texts: the first that was embedded from the same text.
WITH embedded AS (
    SELECT d.rid,
           CASE WHEN json_extract_string(s.chunk_policy, '$.include_headers') = 'true' AND length(d.heading_path) > 0
                THEN array_to_string(d.heading_path, ' > ') || E'\n\n' || visible(d.text, d.shown)
                ELSE visible(d.text, d.shown) END AS text
    FROM documents AS d JOIN source_documents AS s ON s.doc_id = d.doc_id
    WHERE s.chunk_policy IS NOT NULL
          -- The vectors of an upgraded file are those of the text with its markup.
          AND (d.shown IS NULL OR NOT EXISTS (FROM embedding_metadata WHERE key = 'vectors_with_markup'))
),
known AS (SELECT w.place, min(e.rid) AS rid FROM wanted_texts AS w JOIN embedded AS e ON e.text = w.text GROUP BY w.place)
SELECT k.place, d.embedding FROM known AS k JOIN documents AS d ON d.rid = k.rid ORDER BY k.place;
