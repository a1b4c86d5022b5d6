-- What counts as the headings of a chunk, as one text: its heading path and, for the first chunk of a document, what the
-- front matter says of the page. A title that heads the path is not repeated. The metadata are parsed once for all names.
CREATE OR REPLACE MACRO fts_main_documents.heading_text(path, number, metadata, labels) AS
    coalesce(array_to_string(path, ' '), '') || CASE WHEN number > 0 THEN '' ELSE coalesce(' ' || array_to_string(
        list_transform(
            json_extract(coalesce(metadata, '{}'), ['$.title', '$.description', '$.keywords', '$.author', '$.aliases']),
            lambda found: CASE json_type(found)
                WHEN 'ARRAY' THEN array_to_string(TRY_CAST(found AS VARCHAR[]), ' ')
                WHEN 'OBJECT' THEN NULL
                ELSE CASE WHEN NOT list_contains(path, found->>'$') THEN found->>'$' END
            END)
        || labels, ' '), '') END;
