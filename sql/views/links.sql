-- The links of the Markdown documents in the order of the text. A wikilink names a note as Obsidian does, by its file name or by the end
-- of its path, with or without .md: of several the one with that very path is meant, then one in the folder of the link, then that
-- with the shortest path.
CREATE OR REPLACE VIEW links AS
WITH paths AS (
    SELECT doc_id, collection,
           lower(CASE WHEN collection = 'default' THEN doc_id ELSE substr(doc_id, length(collection) + 2) END) AS path
    FROM source_documents
), notes AS (
    SELECT doc_id, collection, path, regexp_replace(path, '\.(md|markdown)$', '') AS stem,
           regexp_replace(path, '[^/]*$', '') AS folder, regexp_extract(path, '[^/]*$') AS name
    FROM paths
), named AS (
    SELECT l.doc_id, l.link_index, n.doc_id AS target,
           row_number() OVER (
               PARTITION BY l.doc_id, l.link_index
               ORDER BY n.stem <> l.note, n.folder <> o.folder, length(n.path), n.doc_id) AS place
    FROM document_links AS l
    JOIN notes AS o ON o.doc_id = l.doc_id
    JOIN notes AS n ON n.collection = o.collection
         AND regexp_replace(n.name, '\.(md|markdown)$', '') = regexp_extract(l.note, '[^/]*$')
         AND (n.stem = l.note OR ends_with(n.stem, '/' || l.note))
    WHERE l.note IS NOT NULL
), targets AS (
    SELECT l.*,
           CASE WHEN l.note IS NULL THEN l.target
                ELSE coalesce(n.target, CASE WHEN s.collection = 'default' THEN '' ELSE s.collection || ':' END || l.note || '.md') END AS points_to
    FROM document_links AS l
    LEFT JOIN named AS n ON n.doc_id = l.doc_id AND n.link_index = l.link_index AND n.place = 1
    LEFT JOIN source_documents AS s ON s.doc_id = l.doc_id
)
SELECT l.doc_id AS source, l.points_to AS target, l.label, l.url, l.fragment, l.points_to IS NULL AS external,
       l.points_to IS NOT NULL AND s.doc_id IS NULL AS broken, l.link_index, l.i_start, l.i_end
FROM targets AS l LEFT JOIN source_documents AS s ON s.doc_id = l.points_to
ORDER BY l.doc_id, l.link_index;
