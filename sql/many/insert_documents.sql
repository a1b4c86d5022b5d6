-- Documents with the time when they were first stored.
INSERT INTO source_documents BY NAME FROM new_sources ORDER BY doc_id;
