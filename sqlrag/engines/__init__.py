"""The engines of a search: a DuckDB file, several files, or Postgres; ``base`` defines their interface."""
