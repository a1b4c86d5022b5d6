"""FAISS + JSON: ``vectors-{model}.faiss`` and ``metadata-{model}.json`` side by side, as other programs keep them."""

from __future__ import annotations

import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.errors import FormatError, InputError
from sqlrag.formats.contents import Contents, at_unit_length, whole
from sqlrag.formats.documents import to_json, write_documents
from sqlrag.formats.documents_reading import DocumentReader
from sqlrag.formats.exchange import stored_contents, write_store
from sqlrag.formats.files import Exported, existing, new_output
from sqlrag.formats.flat_index import flat_header, is_index, read_flat_index
from sqlrag.formats.header import (
    CONTENTS_HASH,
    check_contents_hash,
    make_header,
    most_frequent_policy,
    text_of,
)
from sqlrag.formats.ragmd import MAX_BYTES, check_whole
from sqlrag.formats.strict_json import strict_json
from sqlrag.store.files import real_path
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from sqlrag.formats.contents import Batch
    from sqlrag.formats.exchange import Imported
    from sqlrag.formats.flat_index import FlatIndex
    from sqlrag.types import AnyEmbedder

_INDEX_NAME = re.compile(r"vectors-(.+)\.faiss")
_JSON_NAME = re.compile(r"metadata-(.+)\.json")
# The line that holds the hash of all that follows it.
_HASH_LINE = re.compile(rb'\A\{\s*"%s": "[0-9a-f]{64}",\r?\n' % CONTENTS_HASH.encode())


def model_slug(model_name: str) -> str:
    """Return a model's name as it stands in the names of the two files.

    Examples
    --------
    >>> model_slug("nomic-embed-text:latest"), model_slug("BAAI/bge-small-en-v1.5")
    ('nomic-embed-text', 'baai-bge-small-en-v1-5')
    """
    return re.sub(r"[^a-z0-9]+", "-", model_name.removesuffix(":latest").lower()).strip("-") or "default"


def pair_of(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None) -> tuple[Path, Path]:
    """Return the paths of index and JSON, where one of them is named, or both.

    Raises
    ------
    InputError
        The name is neither ``vectors-….faiss`` nor ``metadata-….json``, and the other one was not given.
    """
    first = real_path(path)
    if json_path is not None:
        return first, real_path(json_path)
    for pattern, other in ((_INDEX_NAME, "metadata-{}.json"), (_JSON_NAME, "vectors-{}.faiss")):
        match = pattern.fullmatch(first.name)
        if match is not None:
            second = first.with_name(other.format(match[1]))
            return (first, second) if pattern is _INDEX_NAME else (second, first)
    raise InputError(
        f"{first.name!r} does not say which file belongs to it: name it vectors-MODEL.faiss or metadata-MODEL.json, or "
        "give json_path too (--from-json, --to-json)."
    )


def is_faiss_json(path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None) -> bool:
    """Return whether a path is one of such a pair, by the beginning of both files."""
    try:
        index, metadata = pair_of(path, json_path)
    except InputError:
        return False
    return index.is_file() and metadata.is_file() and is_index(_beginning(index)) and _is_json(metadata)


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

    The index is an IndexFlatIP of unit vectors. The JSON holds its SHA-256, and is written last: a pair of two exports
    is found when it is read.

    Parameters
    ----------
    db_path
        The store.
    path, json_path
        The index and the JSON. A folder, or one of ``vectors-MODEL.faiss`` and ``metadata-MODEL.json``, is enough.
    collection, tags_any, tags_all, metadata
        Whole documents are chosen that pass these filters, themselves or by one of their chunks.
    overwrite
        Replace an index and a JSON file of this kind. Files of another kind are never replaced.

    Returns
    -------
    Exported
        ``path``, ``documents``, ``chunks``, ``size_bytes`` and ``notices``.

    Raises
    ------
    InputError
        A filter is of the wrong type, or the names do not say which files belong together.
    NotFoundError, StoreError and its kinds
        The store cannot be read, or the files not be written.
    FormatError
        No document passes the filters, metadata hold NaN, or what exists is of another kind.
    """
    chosen = {"collection": collection, "tags_any": tags_any, "tags_all": tags_all, "metadata": metadata}
    with stored_contents(db_path, **chosen) as contents:  # type: ignore[arg-type]
        return write_faiss_json(contents, path, json_path, overwrite=overwrite)


def import_faiss_json(
    path: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    json_path: str | os.PathLike[str] | None = None,
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Make a store of a FAISS index and its JSON, or take their documents into one in place of those of the same ids.

    Parameters
    ----------
    path, json_path
        The index and the JSON. One of ``vectors-MODEL.faiss`` and ``metadata-MODEL.json`` is enough.
    db_path
        The store. One that exists must hold vectors of the same model.
    embedder
        What made the vectors, for files that do not say enough to embed questions; it is asked to prove it.
    overwrite
        Make the store anew where it exists.

    Returns
    -------
    Imported
        ``path``, ``documents``, ``chunks``, ``created`` and ``notices``.

    Raises
    ------
    InputError
        The names do not say which files belong together.
    NotFoundError
        One of the files does not exist.
    FormatError
        They are damaged, of another format, or do not belong together; the store is as it was.
    ModelMismatchError
        Their model is not that of the store, or ``embedder`` did not make the vectors.
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
    if json_path is None and real_path(path).is_dir():
        path = Path(path) / f"vectors-{model_slug(contents.settings.get('embedding_model', ''))}.faiss"
    index_path, metadata_path = pair_of(path, json_path)
    batch = whole(contents)
    check_whole(contents, batch)
    vectors, scaled = at_unit_length(batch.vectors)
    head = flat_header(*vectors.shape)
    floats = np.ascontiguousarray(vectors, "<f4").data.cast("B") if len(vectors) else memoryview(b"")
    with (
        # The outer one is put in place last.
        new_output(metadata_path, overwrite=overwrite, is_ours=_is_json, kind="JSON of a FAISS index") as json_file,
        new_output(index_path, overwrite=overwrite, is_ours=_is_index_file, kind="FAISS index") as index_file,
    ):
        with ThreadPoolExecutor(1) as worker:
            digest = worker.submit(_sha256, head, floats)
            size = index_file.write(head) + index_file.write(floats)
            texts = json_bytes(contents, batch, digest.result)
        size += json_file.write(texts)
    notices = list(contents.notices)
    if scaled:
        notices.append(f"{counted(scaled, 'vector')} of another length than 1 brought to length 1.")
    return Exported(metadata_path, contents.documents, contents.chunks, size, notices)


def json_bytes(contents: Contents, batch: Batch, vectors_sha256: Any) -> bytes:
    """Return the JSON file; ``vectors_sha256()`` is asked for at the end."""
    policies = batch.sources["chunk_policy"]
    texts = write_documents(batch, most_frequent_policy(policies))
    references = ",\n".join(f"{{{reference}}}" for reference in texts.references)
    documents = ",\n".join(texts.blocks)
    header = make_header(contents, policies, "IndexFlatIP", vectors_sha256())
    generator = header.pop("generator")
    members = [f'"{name}": {to_json(value)}' for name, value in header.items()]
    members += [f'"chunk_refs": [\n{references}\n]', f'"documents": [\n{documents}\n]']
    # At the end, so that no cut takes out both this and the hash, which one without the other is refused.
    members.append(f'"generator": {to_json(generator)}')
    rest = (",\n".join(members) + "\n}\n").encode()
    return f'{{\n"{CONTENTS_HASH}": "{hashlib.sha256(rest).hexdigest()}",\n'.encode() + rest


@contextmanager
def read_faiss_json(
    path: str | os.PathLike[str], json_path: str | os.PathLike[str] | None = None
) -> Iterator[Contents]:
    """Read a FAISS index and its JSON and yield what they hold; the vectors as they are, of whatever length.

    Raises
    ------
    InputError
        The names do not say which files belong together.
    NotFoundError
        One of the files does not exist.
    FormatError
        They are damaged, edited, too large, of another format, or do not belong together.
    """
    index_path, metadata_path = pair_of(path, json_path)
    yield load_faiss_json(existing(index_path), existing(metadata_path))


def load_faiss_json(index_path: Path, metadata_path: Path) -> Contents:
    """Read two files that are there; see :func:`read_faiss_json`."""
    where = str(metadata_path)
    for path in (index_path, metadata_path):
        if path.stat().st_size > MAX_BYTES:
            raise FormatError(f"{path} has more than the {MAX_BYTES:,} bytes that are read. Split it.")
    with ThreadPoolExecutor(1) as worker:
        reading = worker.submit(_read_index, index_path)
        data = metadata_path.read_bytes().removeprefix(b"\xef\xbb\xbf")
        header = strict_json(data, where)
        if not isinstance(header, dict) or not {"chunk_refs", "documents"} <= header.keys():
            raise FormatError(f"{where} is no JSON of a FAISS index: it lacks chunk_refs or documents.")
        documents, references = header.pop("documents"), header.pop("chunk_refs")
        _check_hash(header, data, where)
        reader = DocumentReader(documents, references, text_of(header, "chunk_policy", where) or None, where)
        index, sha256 = reading.result()
    return reader.contents(header, index, sha256)


def _read_index(path: Path) -> tuple[FlatIndex, str]:
    """Return the index in a file, and its SHA-256."""
    size = path.stat().st_size
    data = np.empty(3 + size, np.uint8)[3:]  # the 46th byte lies at a multiple of 16
    with path.open("rb") as file:
        if file.readinto(data.data) != size:
            raise FormatError(f"{path} has become shorter while it was read. Try again.")
    return read_flat_index(data, str(path)), hashlib.sha256(data.data).hexdigest()


def _check_hash(header: Mapping[str, Any], data: bytes, where: str) -> None:
    if text_of(header, CONTENTS_HASH, where):
        line = _HASH_LINE.match(data)
        rest = b"" if line is None else data[line.end() :].replace(b"\r", b"")
        check_contents_hash(header, hashlib.sha256(rest).hexdigest(), where)


def _sha256(head: bytes, rest: memoryview) -> str:
    digest = hashlib.sha256(head)
    digest.update(rest)
    return digest.hexdigest()


def _beginning(path: Path, size: int = 64) -> bytes:
    with path.open("rb") as file:
        return file.read(size)


def _is_index_file(path: Path) -> bool:
    return is_index(_beginning(path))


def _is_json(path: Path) -> bool:
    """Return whether a file is the JSON of such a pair: its keys stand near the beginning."""
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
