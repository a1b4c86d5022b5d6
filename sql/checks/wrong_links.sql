-- A link belongs to a document, is numbered from 0 in the order of the text, and stands in brackets where it says.
WITH placed AS (
    SELECT l.doc_id, l.link_index, l.i_start, l.i_end,
           row_number() OVER (PARTITION BY l.doc_id ORDER BY l.i_start, l.link_index) - 1 AS place,
           coalesce(substring(s.text, l.i_start + 1, 1) IN ('[', '<'), false)
               AND substring(s.text, l.i_end, 1) IN (']', ')', '>') AS in_brackets
    FROM document_links AS l LEFT JOIN source_documents AS s ON s.doc_id = l.doc_id
)
SELECT doc_id || '#' || link_index AS link
FROM placed
WHERE NOT in_brackets OR place <> link_index
ORDER BY doc_id, link_index;
