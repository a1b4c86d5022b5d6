-- The words are those of the chunks, each once, with the number of chunks that hold it.
WITH tokens AS (
    SELECT DISTINCT rid, unnest(fts_main_documents.plain_words(field) || fts_main_documents.compound_parts(field)
                                || fts_main_documents.run_characters(fts_main_documents.composed(field))) AS word
    FROM (
        SELECT rid, visible(text, shown) AS field FROM documents
        UNION ALL
        SELECT rid, fts_main_documents.heading_text(heading_path, chunk_index, metadata_, tags) FROM documents
    )
),
expected AS (SELECT word, count(*) AS df FROM tokens GROUP BY word)
SELECT coalesce(e.word, w.word) AS word
FROM expected AS e FULL JOIN fts_main_documents.words AS w ON w.word = e.word
WHERE e.df IS DISTINCT FROM w.df
UNION ALL
SELECT word FROM fts_main_documents.words GROUP BY word HAVING count(*) > 1
ORDER BY word;
