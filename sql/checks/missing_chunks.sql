-- A document with text has chunks; one that was cut from a file has all of them, numbered from 0 on and to the end of its text.
SELECT s.doc_id
FROM source_documents AS s
LEFT JOIN (
    SELECT doc_id, count(*) AS chunks, max(chunk_index) AS last_index, max(i_end) AS i_end FROM documents GROUP BY doc_id
) AS d ON d.doc_id = s.doc_id
WHERE (
    s.chunk_policy IS NOT NULL
    AND (
        d.chunks IS NULL
        OR d.last_index <> d.chunks - 1
        OR regexp_matches(substring(left(s.text, coalesce(s.shown_end, length(s.text))), greatest(d.i_end, s.body_start) + 1), '[^\pZ\p{Cc}]')
    )
)
OR (d.chunks IS NULL AND regexp_matches(substring(left(s.text, coalesce(s.shown_end, length(s.text))), s.body_start + 1), '[^\pZ\p{Cc}]'))
ORDER BY s.doc_id;
