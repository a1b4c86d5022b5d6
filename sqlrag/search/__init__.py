"""Open stores: a file, several files, or Postgres, with their questions and their changes."""

from sqlrag.arguments import refuse_calls

refuse_calls(__name__)
