-- The tables have their indexes: PostgresStore.migrate(url, reindex=True) makes them.
SELECT wanted.name
FROM (VALUES ('chunks_collection_doc_id_chunk_index_key'), ('chunks_doc_id'), ('chunks_metadata'), ('chunks_pkey'), ('chunks_rid'),
             ('chunks_tags'), ('collections_pkey'), ('documents_pkey'), ('embedding_metadata_pkey'), ('postings_ending'),
             ('postings_term'), ('postings_word')) AS wanted(name)
WHERE to_regclass(format('%%I.%%I', current_schema(), wanted.name)) IS NULL
ORDER BY wanted.name;
