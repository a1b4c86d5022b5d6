-- In DuckDB: the words of each text, and what else it is found by without being longer, as in index/stage_tokens.
SELECT fts_main_documents.plain_words(text),
       fts_main_documents.compound_parts(text) || fts_main_documents.run_characters(fts_main_documents.composed(text))
FROM (SELECT unnest($texts) AS text, generate_subscripts($texts, 1) AS place)
ORDER BY place;
