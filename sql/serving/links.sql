-- The links of the document of the chunk $node_id to other documents of the file, in the order of the text: the URL as written and the
-- chunk that it leads to, that below the heading of its fragment or else the first. A page of a site is found by its source, too, and a
-- wikilink by the end of its path, the shortest one. The view links knows more ways, which it looks for in all documents at once.
WITH own AS (
    SELECT l.link_index, l.url, lower(l.fragment) AS fragment, l.target, lower(l.note) AS note, s.collection, s.doc_id
    FROM document_links AS l JOIN source_documents AS s ON s.doc_id = l.doc_id
    WHERE l.doc_id IN (SELECT d.doc_id FROM documents AS d WHERE d.node_id = $node_id)
), named AS (
    SELECT link_index, target AS name, 0 AS way FROM own WHERE target IS NOT NULL
    UNION ALL
    SELECT link_index, rtrim(regexp_replace(target, '(/|\.html?)$', ''), '/') || suffix, 1
    FROM own, (SELECT unnest(['.md', '.mdx', '/index.md', '/README.md']) AS suffix)
    WHERE target IS NOT NULL
), found AS (
    SELECT n.link_index, s.doc_id, n.way FROM named AS n JOIN source_documents AS s ON lower(s.doc_id) = lower(n.name)
    UNION ALL
    SELECT o.link_index, s.doc_id, 2
    FROM own AS o JOIN source_documents AS s ON s.collection = o.collection
         AND regexp_extract(regexp_replace(lower(s.doc_id), '\.(md|markdown)$', ''), '[^/:]*$')
             = regexp_extract(regexp_replace(o.note, '\.(md|markdown)$', ''), '[^/]*$')
         AND ends_with('/' || regexp_replace(replace(lower(s.doc_id), ':', '/'), '\.(md|markdown)$', ''),
                       '/' || regexp_replace(o.note, '\.(md|markdown)$', ''))
), best AS (
    SELECT link_index, doc_id
    FROM (SELECT link_index, doc_id, row_number() OVER (PARTITION BY link_index ORDER BY way, length(doc_id), doc_id) AS place FROM found)
    WHERE place = 1
), chunk AS (
    SELECT o.link_index, o.url, d.node_id,
           row_number() OVER (
               PARTITION BY o.link_index
               ORDER BY trim(regexp_replace(lower(d.heading_path[-1]), '[^\p{L}\p{N}_]+', '-', 'g'), '-') IS DISTINCT FROM o.fragment,
                        d.chunk_index) AS place
    FROM own AS o JOIN best AS b ON b.link_index = o.link_index JOIN documents AS d ON d.doc_id = b.doc_id
)
SELECT url, node_id FROM chunk WHERE place = 1 ORDER BY link_index LIMIT 1000;
