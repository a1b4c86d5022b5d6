-- A chunk is as long as its words are today; the averages of the lexical index are taken from these lengths.
SELECT d.node_id
FROM fts_main_documents.docs AS i JOIN documents AS d ON d.rid = i.rid
WHERE i.len <> len(fts_main_documents.plain_words(visible(d.text, d.shown)))
   OR i.heading_len <> coalesce(len(fts_main_documents.plain_words(fts_main_documents.heading_text(d.heading_path, d.chunk_index, d.metadata_, d.tags))), 0)
ORDER BY d.node_id;
