-- In DuckDB: what is indexed of the chunks in documents, text and headings, and what samples of them are taken by.
SELECT rid, visible(text, shown), fts_main_documents.heading_text(heading_path, chunk_index, metadata_, tags), hash(doc_id, chunk_index)
FROM documents
ORDER BY rid;
