-- Whether the store answers at all.
SELECT count(*) FROM embedding_metadata;
