-- The words of each of $texts, with the single characters of runs without blanks, in the order of the texts.
SELECT fts_main_documents.tokenize(text) || fts_main_documents.run_characters(text)
FROM (SELECT unnest($texts) AS text, generate_subscripts($texts, 1) AS place)
ORDER BY place;
