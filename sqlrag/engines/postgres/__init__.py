"""The store in Postgres with pgvector."""
