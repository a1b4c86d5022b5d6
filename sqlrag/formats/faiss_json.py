"""FAISS + JSON: ``vectors-{model}.faiss`` and ``metadata-{model}.json`` side by side, as other programs store them."""

from __future__ import annotations

import glob
import hashlib
import json
import os
import re
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.engines.contents import Contents, whole_at_unit_length
from sqlrag.engines.duckdb.blocks import identity
from sqlrag.engines.duckdb.failures import public, reported
from sqlrag.engines.duckdb.files import real_path
from sqlrag.errors import FormatError, InputError, StoreExistsError
from sqlrag.formats.exchange import stored_contents, write_store
from sqlrag.formats.flat_index import flat_parts, flat_sha256, is_index, read_flat_index
from sqlrag.formats.json_documents import (
    CONTENTS_HASH,
    DocumentReader,
    check_contents_hash,
    make_header,
    most_frequent_policy,
    text_of,
    to_json,
    write_documents,
)
from sqlrag.formats.ragmd import MAX_BYTES
from sqlrag.formats.targets import Exported, existing, exported, new_output
from sqlrag.strict_json import strict_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlrag.engines.contents import Batch
    from sqlrag.formats.exchange import Imported
    from sqlrag.formats.flat_index import FlatIndex
    from sqlrag.types import AnyEmbedder

_INDEX_NAME = re.compile(r"vectors-(.+)\.faiss")

_JSON_NAME = re.compile(r"metadata-(.+)\.json")

# The line with the hash of everything after it.
_HASH_LINE = re.compile(rb'\A\{\s*"%s": "[0-9a-f]{64}",\r?\n' % CONTENTS_HASH.encode())


def model_slug(model_name: str) -> str:
    """Return a model's name as it is written in the names of the two files.

    Examples
    --------
    >>> model_slug("nomic-embed-text:latest"), model_slug("BAAI/bge-small-en-v1.5")
    ('nomic-embed-text', 'baai-bge-small-en-v1-5')
    """
    return re.sub(r"[^a-z0-9]+", "-", model_name.removesuffix(":latest").lower()).strip("-") or "default"


def pair_of(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None) -> tuple[Path, Path]:
    """Return the paths of index and JSON, from one or both of them, or from the folder that has one such pair.

    Raises
    ------
    InputError
        The name is neither ``vectors-….faiss`` nor ``metadata-….json``, and the other path is not given; or the folder
        has no pair or several.
    """
    first = real_path(path)
    if json_path is not None:
        return first, real_path(json_path)
    if first.is_dir():
        found = indexes_in(first)
        if len(found) == 1:
            return pair_of(found[0])
        names = ", ".join(one.name for one in found)
        raise InputError(
            f"{first} has several indexes: {names}. Name one of them."
            if found
            else f"There is no vectors-MODEL.faiss in the folder {first}. Name the folder that has it, or the file."
        )
    for pattern, other in ((_INDEX_NAME, "metadata-{}.json"), (_JSON_NAME, "vectors-{}.faiss")):
        match = pattern.fullmatch(first.name)
        if match is not None:
            second = first.with_name(other.format(match[1]))
            return (first, second) if pattern is _INDEX_NAME else (second, first)
    raise InputError(
        f"{first.name!r} does not name the other file of the pair: call it vectors-MODEL.faiss, or "
        "pass json_path, too (--from-json, --to-json)."
    )


def indexes_in(folder: Path) -> list[Path]:
    """Return the indexes in a folder that are named as in a pair."""
    return sorted(one for one in folder.glob("vectors-*.faiss") if _INDEX_NAME.fullmatch(one.name))


def is_faiss_json(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None) -> bool:
    """Return whether a path is one of such a pair, by the beginning of both files."""
    try:
        index, metadata = pair_of(path, json_path)
    except InputError:
        return False
    return index.is_file() and metadata.is_file() and is_index(_beginning(index)) and _is_json(metadata)


@public
def export_faiss_json(
    db_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    json_path: str | os.PathLike[str] | None = None,
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write the documents of a store into a FAISS index and a JSON file.

    The index is an IndexFlatIP of unit vectors. The JSON has its SHA-256, and is written last: a mixed pair of two
    exports is detected when it is read.

    Parameters
    ----------
    db_path
        The store.
    path, json_path
        The index and the JSON. A folder, or one of ``vectors-MODEL.faiss`` and ``metadata-MODEL.json``, is enough; a
        name without a suffix is a folder, which is made where there is none.
    collection, tags_any, tags_all, metadata
        Whole documents are chosen of which the document or a chunk passes these filters.
    overwrite
        Replace an index and a JSON file of this kind. Files of another kind are never replaced.

    Returns
    -------
    Exported
        ``path``, ``documents``, ``chunks``, ``size_bytes`` and ``notices``.

    Raises
    ------
    InputError
        A filter has a wrong type, or the names are not those of a pair.
    NotFoundError, StoreError and its kinds
        The store cannot be read, or the files cannot be written.
    FormatError
        No document passes the filters, metadata contain NaN, or an existing file is of another kind.
    """
    with stored_contents(db_path, collection, tags_any, tags_all, metadata) as contents:
        return write_faiss_json(contents, path, json_path, overwrite=overwrite)


@public
def import_faiss_json(
    path: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    json_path: str | os.PathLike[str] | None = None,
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Import a FAISS index and its JSON into a store, new or existing; documents of the same ids are replaced.

    Parameters
    ----------
    path, json_path
        The index and the JSON. One of ``vectors-MODEL.faiss`` and ``metadata-MODEL.json`` is enough, or the folder that
        has one such pair.
    db_path
        The store. An existing one must have vectors of the same model.
    embedder
        The embedder of the vectors, for files that do not identify their model; it is verified.
    overwrite
        Replace the store if it exists.

    Returns
    -------
    Imported
        ``path``, ``documents``, ``chunks``, ``created`` and ``notices``.

    Raises
    ------
    InputError
        The names are not those of a pair, a folder has none or several, or the store has a document of the same id as a
        row of a table; it is unchanged.
    NotFoundError
        One of the files does not exist.
    FormatError
        They are damaged, of another format, or do not belong together; the store is unchanged.
    ModelMismatchError
        Their model is not that of the store, or the vectors are not of ``embedder``.
    StoreError and its kinds
        The store cannot be written.
    """
    with read_faiss_json(path, json_path) as contents:
        return write_store(contents, db_path, embedder=embedder, overwrite=overwrite)


def write_faiss_json(
    contents: Contents,
    path: str | os.PathLike[str],
    json_path: str | os.PathLike[str] | None = None,
    *,
    overwrite: bool = False,
) -> Exported:
    """Write contents, of a store or of another file, as FAISS + JSON; see :func:`export_faiss_json`."""
    given = real_path(path)
    if json_path is None and (given.is_dir() or not (given.suffix or given.exists())):
        with reported(given, "Nothing was written"):
            given.mkdir(parents=True, exist_ok=True)
        path = Path(path) / f"vectors-{model_slug(contents.settings.get('embedding_model', ''))}.faiss"
    index_path, metadata_path = pair_of(path, json_path)
    batch, scaled = whole_at_unit_length(contents)
    head, floats = flat_parts(batch.vectors)
    with (
        _kept(index_path),
        # The outer file is renamed last.
        new_output(
            metadata_path, overwrite=overwrite, is_ours=_is_json, kind="JSON file of a FAISS index"
        ) as json_file,
        new_output(index_path, overwrite=overwrite, is_ours=_is_index_file, kind="FAISS index") as index_file,
    ):
        with ThreadPoolExecutor(1) as worker:
            digest = worker.submit(flat_sha256, head, floats)
            index_file.write(head)
            index_file.write(floats)
            texts = json_bytes(contents, batch, digest.result)
        json_file.write(texts)
    return exported(contents, metadata_path, index_path, notices=scaled)


@contextmanager
def _kept(index: Path) -> Iterator[None]:
    """Keep the old index by a second name until the new pair is whole; after an error give it its own name again.

    Where the process was killed between the two renames, :func:`load_faiss_json` finds the index of the old JSON there.
    """
    old = None
    if index.exists():
        with reported(index, "The file is as it was"):
            before = identity(index)
            old = index.with_name(f".{index.name}.{os.getpid()}-{secrets.token_hex(4)}.kept")
            try:
                os.link(index, old)
            except OSError:  # a file system without links
                shutil.copyfile(index, old)
    try:
        yield
    except BaseException as error:
        with suppress(OSError):  # the first error is the one to report
            if old is None:
                # An index of another process stays.
                if not (isinstance(error, StoreExistsError) and error.path == str(index)):
                    index.unlink(missing_ok=True)
            elif identity(index) != before:
                old.replace(index)
            else:
                old.unlink()
        raise
    for left_over in _all_kept(index):
        left_over.unlink(missing_ok=True)


def _all_kept(index: Path) -> list[Path]:
    return sorted(index.parent.glob(f".{glob.escape(index.name)}.*.kept"))


def json_bytes(contents: Contents, batch: Batch, vectors_sha256: Any) -> bytes:
    """Return the JSON file; ``vectors_sha256()`` is called at the end."""
    policies = batch.sources["chunk_policy"]
    texts = write_documents(batch, most_frequent_policy(policies))
    references = ",\n".join(f"{{{reference}}}" for reference in texts.references)
    documents = ",\n".join(texts.blocks)
    header = make_header(contents, policies, "IndexFlatIP", vectors_sha256())
    generator = header.pop("generator")
    members = [f'"{name}": {to_json(value)}' for name, value in header.items()]
    members += [f'"chunk_refs": [\n{references}\n]', f'"documents": [\n{documents}\n]']
    # At the end, so that a truncated file has lost this or the hash, and is refused.
    members.append(f'"generator": {to_json(generator)}')
    rest = (",\n".join(members) + "\n}\n").encode()
    return f'{{\n"{CONTENTS_HASH}": "{hashlib.sha256(rest).hexdigest()}",\n'.encode() + rest


@contextmanager
def read_faiss_json(
    path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None
) -> Iterator[Contents]:
    """Read a FAISS index and its JSON and yield their contents, with vectors of any length.

    Raises
    ------
    InputError
        The names are not those of a pair.
    NotFoundError
        One of the files does not exist.
    FormatError
        They are damaged, edited, too large, of another format, or do not belong together.
    """
    index_path, metadata_path = pair_of(path, json_path)
    yield load_faiss_json(existing(index_path), existing(metadata_path))


def load_faiss_json(index_path: Path, metadata_path: Path) -> Contents:
    """Read two existing files; see :func:`read_faiss_json`."""
    where = str(metadata_path)
    for path in (index_path, metadata_path):
        if path.stat().st_size > MAX_BYTES:
            raise FormatError(f"{path} is larger than the limit of {MAX_BYTES:,} bytes. Split it.")
    with ThreadPoolExecutor(1) as worker:
        reading = worker.submit(_read_index, index_path)
        data = metadata_path.read_bytes().removeprefix(b"\xef\xbb\xbf")
        header = strict_json(data, where)
        if not isinstance(header, dict) or not {"chunk_refs", "documents"} <= header.keys():
            raise FormatError(f"{where} is not the JSON of a FAISS index: it lacks chunk_refs or documents.")
        documents, references = header.pop("documents"), header.pop("chunk_refs")
        _check_hash(header, data, where)
        reader = DocumentReader(documents, references, text_of(header, "chunk_policy", where) or None, where)
        index, sha256 = reading.result()
    named = text_of(header, "vectors_sha256", where)
    for kept in _all_kept(index_path) if named not in ("", sha256) else ():
        other = _read_index(kept)
        index, sha256 = other if other[1] == named else (index, sha256)
    return reader.contents(header, index, sha256)


def _read_index(path: Path) -> tuple[FlatIndex, str]:
    """Return the index in a file, and its SHA-256."""
    size = path.stat().st_size
    data = np.empty(3 + size, np.uint8)[3:]  # aligns the 46th byte to 16 bytes
    with path.open("rb") as file:
        if file.readinto(data.data) != size:
            raise FormatError(f"{path} became shorter while it was read. Try again.")
    return read_flat_index(data, str(path)), hashlib.sha256(data.data).hexdigest()


def _check_hash(header: Mapping[str, Any], data: bytes, where: str) -> None:
    if text_of(header, CONTENTS_HASH, where):
        line = _HASH_LINE.match(data)
        rest = b"" if line is None else data[line.end() :].replace(b"\r", b"")
        check_contents_hash(header, hashlib.sha256(rest).hexdigest(), where)


def _beginning(path: Path, size: int = 64) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _is_index_file(path: Path) -> bool:
    return is_index(_beginning(path))


def _is_json(path: Path) -> bool:
    """Return whether a file is the JSON of such a pair: its keys are near the beginning."""
    beginning = _beginning(path, 1 << 16).removeprefix(b"\xef\xbb\xbf").lstrip()
    if not beginning.startswith(b"{"):
        return False
    if any(f'"{name}"'.encode() in beginning for name in ("chunk_refs", "embedding_dim")):
        return True
    try:
        loaded = json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return isinstance(loaded, dict) and {"chunk_refs", "documents"} <= set(loaded)
