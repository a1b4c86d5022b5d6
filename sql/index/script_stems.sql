-- The stem of each of $words by the stemmer of its script, in the order of the words; NULL where it has none.
SELECT fts_main_documents.script_stem(word, $stemmer)
FROM (SELECT unnest(CAST($words AS VARCHAR[])) AS word, generate_subscripts(CAST($words AS VARCHAR[]), 1) AS place)
ORDER BY place;
