-- What the map shows for each point, in reading order: the headings above it, or the title of the document, and the
-- beginning of its text.
SELECT coalesce(m.node_id, m.doc_id) AS id, m.x, m.y, m.cluster,
       CASE WHEN m.node_id IS NULL THEN coalesce(json_extract_string(s.metadata_, '$.title'), s.file_name, '')
            ELSE coalesce(array_to_string(d.heading_path, ' > '), '') END AS heading,
       left(regexp_replace(trim(visible(coalesce(d.text, f.text, ''), CASE WHEN d.node_id IS NULL THEN f.shown ELSE d.shown END)),
                           '\s+', ' ', 'g'), $characters) AS text
FROM corpus_map AS m LEFT JOIN documents AS d ON d.node_id = m.node_id LEFT JOIN source_documents AS s ON s.doc_id = m.doc_id
     LEFT JOIN documents AS f ON m.node_id IS NULL AND f.doc_id = m.doc_id AND f.chunk_index = 0
ORDER BY m.doc_id, d.chunk_index, m.node_id;
