"""The pipeline: from files to documents to chunks to a store."""
