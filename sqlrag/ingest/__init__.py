"""Files to documents to chunks to a store."""
