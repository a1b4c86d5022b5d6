-- Every key of embedding_metadata that a new file has is there.
SELECT key
FROM (VALUES ('version'), ('created_at'), ('embedding_provider'), ('embedding_model'), ('embedding_dimensions'),
             ('chunking_strategy'), ('chunk_size'), ('include_headers'), ('header_weight'), ('hybrid_search_enabled'),
             ('fts_enabled'), ('source_documents_stored'), ('schema_version'), ('sqlrag_version'), ('duckdb_version'),
             ('stemmer'), ('llama_index_compatible'), ('chunk_overlap'), ('chunk_unit'), ('chunk_policy_hash'), ('normalized'), ('max_tokens'),
             ('query_prefix'), ('passage_prefix'), ('fingerprint')) AS wanted(key)
ANTI JOIN embedding_metadata USING (key)
ORDER BY key;
