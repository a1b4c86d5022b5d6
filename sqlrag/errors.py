"""Every exception that sqlrag raises on purpose.

    SqlragError
    ├── InputError            (ValueError)   an argument is wrong: a blank query, top_k <= 0, chunk_size <= 0 …
    ├── NotFoundError         (LookupError)  a file, folder or id does not exist
    ├── MissingExtraError     (ImportError)  an optional package is not installed
    ├── ModelUnavailableError                a model that embeds, re-ranks or answers is not available
    ├── ModelMismatchError    (ValueError)   the model or its dimensions are not those of the file
    ├── ProviderError                        a model or its server gave a wrong answer or none
    ├── DocumentError                        one document cannot be read, chunked or embedded
    ├── StoreError                           the file cannot be used as a store
    │   ├── NotAStoreError                   it is not a DuckDB database, or not one of ours
    │   ├── StoreExistsError                 it exists and overwrite was not asked for
    │   ├── StoreLockedError                 another process has it open
    │   └── SchemaVersionError               another version of sqlrag wrote it
    └── FormatError           (ValueError)   an exchange file is damaged or of another format

A message says what is wrong, where, and what to do about it. The cause is kept in
``__cause__``, unless it could contain a key.
"""

from __future__ import annotations

from typing import Any


class SqlragError(Exception):
    """Base of every error that sqlrag raises on purpose.

    ``report`` is that of the build, update or upload that the error ended: what was done and what was not. None
    elsewhere.
    """

    report: Any = None


class InputError(SqlragError, ValueError):
    """An argument is wrong: its name, its value and the valid ones are in the message."""


class NotFoundError(SqlragError, LookupError):
    """A file, a folder or an id that was asked for does not exist."""


class MissingExtraError(SqlragError, ImportError):
    """An optional package is needed and not installed; the message has the ``pip install`` line."""

    def __init__(self, what: str, extra: str) -> None:
        self.extra = extra
        super().__init__(f"{what} needs an optional package. Install it with: pip install 'sqlrag-duckdb[{extra}]'")


class ModelUnavailableError(SqlragError):
    """A model that embeds, re-ranks or chats is not available here.

    Its name is unknown, a key is missing, the hub is out of reach, or its files are damaged.
    """


class ModelMismatchError(SqlragError, ValueError):
    """The embedding model, or the number of dimensions, is not the one that the file was built with."""


class ProviderError(SqlragError):
    """A model that embeds, re-ranks or chats, or its server, gave a wrong answer or none.

    It failed or timed out, or its vectors, scores or words have the wrong count, shape or value.
    """


class DocumentError(SqlragError):
    """One document cannot be used: ``doc_id`` names it, ``reason`` says why, ``status`` is "failed" or "empty"."""

    def __init__(self, doc_id: str, reason: str, status: str = "failed") -> None:
        self.doc_id = doc_id
        self.reason = reason
        self.status = status
        super().__init__(f"{doc_id}: {reason}")


class StoreError(SqlragError):
    """The file cannot be used as a store, or the store that is pushed to failed. ``path`` names it."""

    def __init__(self, path: object, message: str) -> None:
        self.path = str(path)
        super().__init__(message)


class NotAStoreError(StoreError):
    """The file is not a DuckDB database, or a DuckDB database that sqlrag did not create."""


class StoreExistsError(StoreError):
    """The output file exists already and ``overwrite=True`` was not given."""


class StoreLockedError(StoreError):
    """Another process has the file open. ``pid`` is its process id where the operating system reports it."""

    def __init__(self, path: object, message: str, pid: int | None = None) -> None:
        self.pid = pid
        super().__init__(path, message)


class SchemaVersionError(StoreError):
    """The file has the schema of another version of sqlrag, or of the published ``sqlrooms-rag``."""


class FormatError(SqlragError, ValueError):
    """An exchange file is damaged or is not of the format that was asked for."""
