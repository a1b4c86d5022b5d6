-- The words of the chunks in staged_chunks, counted. Parts of compound names and single characters of runs are found,
-- but do not make a chunk longer, as with Lucene's overlapping tokens.
CREATE OR REPLACE TEMP TABLE staged_tokens AS
WITH chosen AS (SELECT rid, visible(text, shown) AS text, heading_path, chunk_index, metadata_, tags FROM documents WHERE rid IN (FROM staged_chunks)),
fields AS (
    SELECT rid, text AS field, 1 AS in_text, 0 AS in_heading FROM chosen
    UNION ALL
    SELECT rid, fts_main_documents.heading_text(heading_path, chunk_index, metadata_, tags), 0, 1 FROM chosen
),
tokens AS (
    SELECT rid, unnest(fts_main_documents.plain_words(field)) AS word, in_text, in_heading, 1 AS counts FROM fields
    UNION ALL
    SELECT rid, unnest(fts_main_documents.compound_parts(field) || fts_main_documents.run_characters(fts_main_documents.composed(field))), in_text, in_heading, 0 FROM fields
)
SELECT rid, word, CAST(sum(in_text) AS INTEGER) AS tf, CAST(sum(in_heading) AS INTEGER) AS heading_tf,
       CAST(sum(in_text * counts) AS INTEGER) AS len, CAST(sum(in_heading * counts) AS INTEGER) AS heading_len
FROM tokens
GROUP BY rid, word;
