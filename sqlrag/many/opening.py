"""Opens several files and makes sure that they can be one: the same model and settings, no document in two of them."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Literal

import duckdb
import numpy as np

from sqlrag import options
from sqlrag.errors import InputError, ModelMismatchError, StoreError
from sqlrag.retrieval.file_engine import FileEngine
from sqlrag.retrieval.searching import same_model
from sqlrag.store.database import Database
from sqlrag.store.metadata import OWN_IDS, model_identity
from sqlrag.store.schema import read_sql
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_EXAMPLE = "['january.duckdb', 'february.duckdb']"
# With one of these a file holds chunks whose node_id is not their document and place.
_IDS_OF_THEIR_OWN = {"upgraded_from", OWN_IDS}


def open_parts(db_paths: Iterable[str | os.PathLike[str]], wait_seconds: float | None = None) -> list[FileEngine]:
    """Open files for reading, in the order in which they are named; all of them or none.

    Raises
    ------
    InputError
        None is named or one is named twice, a document is in two of them, or they differ in stemmer, heading weight or
        stop words.
    ModelMismatchError
        Their vectors are of different models.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        One of them cannot be used; see :mod:`sqlrag.errors`.
    """
    paths = [options.path("each of db_paths", path) for path in options.items("db_paths", db_paths, _EXAMPLE)]
    if not paths:
        raise InputError(f"db_paths is empty. Name one or more files, such as {_EXAMPLE}.")
    parts: list[FileEngine] = []
    with ExitStack() as opened:
        for path in paths:
            database = opened.enter_context(Database.open(path, wait_seconds=wait_seconds))
            if any(database.path == part.path for part in parts):
                raise InputError(f"{database.path} is named twice. Name each file once.")
            parts.append(FileEngine(database))
        for part in parts[1:]:
            _check_alike(parts[0], part)
        _check_stop_words(parts)
        _check_distinct(parts)
        opened.pop_all()
    return parts


def stop_words(part: FileEngine) -> frozenset[str]:
    """Return the words that a file leaves out of questions, or raise StoreError where it has no lexical index."""
    try:
        rows = part.cursor().execute("SELECT word FROM fts_main_documents.stopwords").fetchall()
    except duckdb.CatalogException as error:
        raise StoreError(part.path, f"{part.path} has no lexical index. Prepare the file again. ({error})") from error
    return frozenset(word for (word,) in rows)


def _check_alike(first: FileEngine, other: FileEngine) -> None:
    """Raise where scores of two files could not be compared with each other."""
    one, two = model_identity(first.metadata), model_identity(other.metadata)
    both = f"{first.path} and {other.path}"
    if one.dimensions != two.dimensions or not _same_name(one.model_name, two.model_name):
        raise ModelMismatchError(
            f"{both} hold vectors of different models: {one.model_name!r} ({one.dimensions} dimensions) and "
            f"{two.model_name!r} ({two.dimensions}). Give one of them the other's model: reembed(db_path, model)."
        )
    if (one.query_prefix, one.passage_prefix) != (two.query_prefix, two.passage_prefix):
        raise ModelMismatchError(
            f"{both} use {one.model_name!r} with different prefixes: {one.query_prefix!r}, {one.passage_prefix!r} and "
            f"{two.query_prefix!r}, {two.passage_prefix!r}. Prepare one of them again."
        )
    if one.fingerprint is not None and two.fingerprint is not None:
        from sqlrag.embedders.base import SAME_MODEL_COSINE

        cosine = float(np.dot(one.fingerprint, two.fingerprint))
        if not cosine >= SAME_MODEL_COSINE:
            raise ModelMismatchError(
                f"{both} both name {one.model_name!r}, but their vectors differ: cosine {cosine:.3f} for the same "
                "text. Prepare one of them again."
            )
    for name, here, there in (
        ("stemmer", first.metadata["stemmer"], other.metadata["stemmer"]),
        ("heading weight", float(first.metadata["header_weight"]), float(other.metadata["header_weight"])),
    ):
        if here != there:
            raise InputError(
                f"{both} have a different {name}: {here} and {there}. Prepare one of them again with that of the other."
            )


def _check_stop_words(parts: Sequence[FileEngine]) -> None:
    first = stop_words(parts[0])
    for part in parts[1:]:
        found = stop_words(part)
        if found != first:
            word = min(first ^ found)
            raise InputError(
                f"{parts[0].path} and {part.path} have different stop words: {word!r} is one in "
                f"{(parts[0] if word in first else part).path} only. Make their tables of them equal "
                "(fts_main_documents.stopwords)."
            )


def _same_name(one: str, two: str) -> bool:
    return one == two or bool(one.strip() and two.strip() and same_model(one, two))


def _check_distinct(parts: Sequence[FileEngine]) -> None:
    """Raise InputError where a document, or a chunk's id, is in two files."""
    _check_no_shared(parts, "document")
    # Else a node_id is a doc_id and a number, which no two documents share.
    if any(not _IDS_OF_THEIR_OWN.isdisjoint(part.metadata) for part in parts):
        _check_no_shared(parts, "chunk")


def _check_no_shared(parts: Sequence[FileEngine], what: Literal["document", "chunk"]) -> None:
    """Compare hashes first, since a million names take a second; names only where two hashes are the same."""
    hashes = [np.unique(_hashes(part, read_sql(f"many/{what}_hashes"))) for part in parts]
    found, times = np.unique(np.concatenate(hashes), return_counts=True)
    suspects = {"hashes": found[times > 1].tolist()}
    if not suspects["hashes"]:
        return
    seen: dict[str, Path] = {}
    shared: list[tuple[str, Path, Path]] = []
    for part in parts:
        for (name,) in part.cursor().execute(read_sql(f"many/hashed_{what}s"), suspects).fetchall():
            if name in seen:
                shared.append((name, seen[name], part.path))
            seen.setdefault(name, part.path)
    if shared:
        name, one, two = min(shared, key=lambda found: found[0])
        others = f" (and {counted(len(shared) - 1, 'other')} as well)" if shared[1:] else ""
        raise InputError(
            f"The {what} {name!r} is both in {one} and in {two}{others}. Prepare the files into collections of their "
            "own (collection=…), or delete the document from one of them: sqlrag delete DOC_ID --db FILE"
        )


def _hashes(part: FileEngine, sql: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    columns = part.cursor().execute(sql).fetchnumpy()
    return np.asarray(next(iter(columns.values())), dtype=np.uint64)
