"""Open stores: a file, several files, or Postgres, with their questions and their changes."""
