-- In DuckDB: those of the chunks in documents that hold each of the phrases, as in clause_search.
SELECT rid
FROM documents
WHERE holds_phrases(
    CASE WHEN $text_weight > 0 THEN visible(text, shown) ELSE '' END,
    CASE WHEN $heading_weight > 0 THEN [fts_main_documents.heading_text(heading_path, chunk_index, metadata_, tags)] ELSE [] END,
    $phrases)
ORDER BY rid;
