"""Several search files as one: opened together, searched with one ranking, merged into one file."""
