-- What a reader sees of each point of the map, in reading order: the headings above it, or the title of the document, and the
-- beginning of its text.
SELECT coalesce(m.node_id, m.doc_id) AS id, m.x, m.y, m.cluster,
       CASE WHEN m.node_id IS NULL THEN coalesce(json_extract_string(s.metadata_, '$.title'), s.file_name, '')
            ELSE coalesce(array_to_string(d.heading_path, ' > '), '') END AS heading,
       left(regexp_replace(trim(CASE WHEN m.node_id IS NULL THEN substr(s.text, s.body_start + 1, $characters * 2) ELSE d.text END),
                           '\s+', ' ', 'g'), $characters) AS text
FROM corpus_map AS m LEFT JOIN documents AS d ON d.node_id = m.node_id LEFT JOIN source_documents AS s ON s.doc_id = m.doc_id
ORDER BY m.doc_id, d.chunk_index, m.node_id;
