-- The links of the Markdown documents in the order of the text. A wikilink names a note as Obsidian does, by its file name or by the end
-- of its path, with or without .md: of several the one with that very path is meant, then one in the folder of the link, then that
-- with the shortest path. Where a URL leads to no document it is read as one of the site that is made of them: without suffix, as .html
-- or as the folder of an index page, in any case and without the _ of Jekyll's folders, or as the front matter of a page has it
-- (permalink, slug, id). From a slash on it may be the end of a path, or begin with the path of the documents on their site, below
-- which other pages link two of them or more so. Last, ../name/ may be beside its page, which is a folder itself on such a site.
CREATE OR REPLACE VIEW links AS
WITH paths AS (
    SELECT doc_id, collection,
           lower(CASE WHEN collection = 'default' THEN doc_id ELSE substr(doc_id, length(collection) + 2) END) AS path,
           lower(coalesce(metadata_ ->> '$.permalink', metadata_ ->> '$.slug', metadata_ ->> '$.id')) AS given
    FROM source_documents
), names AS (
    SELECT doc_id, collection, path, true AS is_note, regexp_replace(path, '\.(md|markdown)$', '') AS stem FROM paths
    UNION ALL
    SELECT doc_id, collection, path, false,
           regexp_replace(
               regexp_replace(path, '(^|/)_|\.(md|markdown|mdx|html|htm|rst)$', '\1', 'g'), '(^|/)(index|readme)$', '')
    FROM paths
    UNION ALL
    SELECT doc_id, collection, path, false,
           regexp_replace(CASE WHEN starts_with(given, '/') THEN substr(given, 2)
                               ELSE regexp_replace(path, '[^/]*$', '') || given END, '(/|\.html?)$', '')
    FROM paths WHERE given <> ''
), wanted AS (
    SELECT l.doc_id, l.link_index, o.collection, o.path, true AS is_note, true AS is_end, l.note AS stem, '' AS beside
    FROM document_links AS l JOIN paths AS o ON o.doc_id = l.doc_id
    WHERE l.note IS NOT NULL
    UNION ALL
    SELECT l.doc_id, l.link_index, o.collection, o.path, false, regexp_matches(l.url, '^[/{]'),
           regexp_replace(
               regexp_replace(lower(CASE WHEN o.collection = 'default' THEN l.target
                                         ELSE substr(l.target, length(o.collection) + 2) END),
                              '(^|/)_|\.(md|markdown|mdx|html|htm|rst)$', '\1', 'g'),
               '(^|/)(index|readme)$|^\.$', ''),
           regexp_extract(lower(l.url), '^\.\./([^.#?][^#?]*)/(?:[#?].*)?$', 1)
    FROM document_links AS l JOIN paths AS o ON o.doc_id = l.doc_id LEFT JOIN source_documents AS s ON s.doc_id = l.target
    WHERE l.target IS NOT NULL AND s.doc_id IS NULL
), bases AS (
    SELECT w.collection, left(w.stem, length(w.stem) - length(n.stem)) AS base
    FROM wanted AS w
    JOIN names AS n ON n.collection = w.collection AND n.is_note = w.is_note
         AND regexp_extract(n.stem, '[^/]*$') = regexp_extract(w.stem, '[^/]*$')
    WHERE w.is_end AND NOT w.is_note AND n.stem <> '' AND ends_with(w.stem, '/' || n.stem)
    GROUP BY w.collection, base
    HAVING count(DISTINCT n.doc_id) FILTER (n.doc_id <> w.doc_id) > 1
), ways AS (
    SELECT doc_id, link_index, collection, path, is_note, is_end, stem, 0 AS way FROM wanted
    UNION ALL
    SELECT w.doc_id, w.link_index, w.collection, w.path, false, false, substr(w.stem || '/', length(b.base) + 1).rtrim('/'), 1
    FROM wanted AS w JOIN bases AS b ON b.collection = w.collection
    WHERE w.is_end AND NOT w.is_note AND starts_with(w.stem || '/', b.base)
    UNION ALL
    SELECT doc_id, link_index, collection, path, false, false,
           regexp_replace(regexp_replace(path, '[^/]*$', ''), '(^|/)_', '\1', 'g') || beside, 2
    FROM wanted WHERE beside <> ''
), named AS (
    SELECT w.doc_id, w.link_index, n.doc_id AS target,
           row_number() OVER (
               PARTITION BY w.doc_id, w.link_index
               ORDER BY w.way, n.stem <> w.stem, regexp_replace(n.path, '[^/]*$', '') <> regexp_replace(w.path, '[^/]*$', ''),
                        length(n.path), n.doc_id) AS place
    FROM ways AS w
    JOIN names AS n ON n.collection = w.collection AND n.is_note = w.is_note
         AND regexp_extract(n.stem, '[^/]*$') = regexp_extract(w.stem, '[^/]*$')
         AND (n.stem = w.stem OR (w.is_end AND ends_with(n.stem, '/' || w.stem)))
), targets AS (
    SELECT l.*, coalesce(n.target, l.target,
                         CASE WHEN s.collection = 'default' THEN '' ELSE s.collection || ':' END || l.note || '.md') AS points_to
    FROM document_links AS l
    LEFT JOIN named AS n ON n.doc_id = l.doc_id AND n.link_index = l.link_index AND n.place = 1
    LEFT JOIN source_documents AS s ON s.doc_id = l.doc_id
)
SELECT l.doc_id AS source, l.points_to AS target, l.label, l.url, l.fragment, l.points_to IS NULL AS external,
       l.points_to IS NOT NULL AND s.doc_id IS NULL AS broken, l.link_index, l.i_start, l.i_end
FROM targets AS l LEFT JOIN source_documents AS s ON s.doc_id = l.points_to
ORDER BY l.doc_id, l.link_index;
