"""``.ragmd``: a store as one Markdown file, with its documents as JSON and its vectors as a FAISS index in base64."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.errors import FormatError
from sqlrag.formats.base64_lines import decode_lines, encode_lines
from sqlrag.formats.contents import Contents, at_unit_length, whole
from sqlrag.formats.documents import write_documents
from sqlrag.formats.documents_reading import DocumentReader
from sqlrag.formats.exchange import stored_contents, write_store
from sqlrag.formats.files import Exported, existing, new_output, read_whole
from sqlrag.formats.flat_index import HEADER_SIZE, FlatIndex, flat_header, read_flat_index
from sqlrag.formats.header import (
    CONTENTS_HASH,
    check_contents_hash,
    make_header,
    most_frequent_policy,
    text_of,
)
from sqlrag.formats.ragmd_parts import (
    CHUNKS,
    DOCUMENTS,
    VECTORS,
    front_matter_line,
    has_front_matter,
    hashed_lines,
    header_texts,
    split_parts,
    table,
)
from sqlrag.formats.strict_json import strict_json
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from sqlrag.formats.contents import Batch
    from sqlrag.formats.exchange import Imported
    from sqlrag.types import AnyEmbedder, Vectors

MAX_BYTES = 2_000_000_000
"""Files of more bytes are neither written nor read: the whole of one has to fit into memory, several times."""
LARGE_BYTES = 500_000_000
LARGE_DOCUMENTS = 10_000
"""Above these the format is the wrong one, says its design, and so does a notice."""

_BEGINNING = 1 << 16


def is_ragmd(path: str | os.PathLike[str]) -> bool:
    """Return whether a file, of whatever name, is a ``.ragmd`` file: by the names in its front matter."""
    with existing(path).open("rb") as file:
        return has_front_matter(file.read(_BEGINNING))


def export_ragmd(
    db_path: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
) -> Exported:
    """Write the documents of a store into one Markdown file, with their chunks, vectors and the settings of the store.

    The same store gives the same bytes. A chunk stands in one line and a vector too, or three of them, so that a diff
    of two exports shows what was changed.

    Parameters
    ----------
    db_path
        The store.
    path
        The file to write, by custom with the suffix ``.ragmd``. It is there whole or not at all.
    collection, tags_any, tags_all, metadata
        Whole documents are chosen that pass these filters, themselves or by one of their chunks.
    overwrite
        Replace a ``.ragmd`` file. A file of another kind is never replaced.

    Returns
    -------
    Exported
        ``path``, ``documents``, ``chunks``, ``size_bytes`` and ``notices``.

    Raises
    ------
    InputError
        A filter is of the wrong type.
    NotFoundError, StoreError and its kinds
        The store cannot be read, or the file not be written.
    FormatError
        No document passes the filters, it would be larger than 2 GB, metadata hold NaN, or what exists at ``path`` is
        of another kind.
    """
    chosen = {"collection": collection, "tags_any": tags_any, "tags_all": tags_all, "metadata": metadata}
    with stored_contents(db_path, **chosen) as contents:  # type: ignore[arg-type]
        return write_ragmd(contents, path, overwrite=overwrite)


def import_ragmd(
    path: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Make a store of a ``.ragmd`` file, or take its documents into one in place of those of the same ids.

    Parameters
    ----------
    path
        The file, of any name: written by sqlrag or by another program.
    db_path
        The store. One that exists must hold vectors of the same model.
    embedder
        What made the vectors, for a file that does not say enough to embed questions; it is asked to prove it.
    overwrite
        Make the store anew where it exists.

    Returns
    -------
    Imported
        ``path``, ``documents``, ``chunks``, ``created`` and ``notices``.

    Raises
    ------
    NotFoundError
        There is no such file.
    FormatError
        It is damaged, edited or of another format; the store is as it was.
    ModelMismatchError
        Its model is not that of the store, or ``embedder`` did not make its vectors.
    StoreError and its kinds
        The store cannot be written.
    """
    with read_ragmd(path) as contents:
        return write_store(contents, db_path, embedder=embedder, overwrite=overwrite)


def write_ragmd(contents: Contents, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
    """Write contents, of a store or of another file, as ``.ragmd``; see :func:`export_ragmd`."""
    expected = contents.chunks * contents.dimensions * 4 * 4 // 3
    if expected > MAX_BYTES:
        raise FormatError(
            f"A .ragmd file of {contents.chunks:,} vectors would take {expected:,} bytes and more, over the limit of "
            f"{MAX_BYTES:,}. Choose fewer documents, or a format for large stores, such as Parquet."
        )
    with new_output(path, overwrite=overwrite, is_ours=is_ragmd, kind=".ragmd file") as file:
        batch = whole(contents)
        check_whole(contents, batch)
        vectors, scaled = at_unit_length(batch.vectors)
        size = 0
        for part in _file_parts(contents, batch, vectors):
            size += file.write(part)
        if size > MAX_BYTES:
            raise FormatError(f"The .ragmd file would be larger than {MAX_BYTES:,} bytes. Choose fewer documents.")
    notices = [*contents.notices, *_size_notices(contents.documents, size)]
    if scaled:
        notices.append(f"{counted(scaled, 'vector')} of another length than 1 brought to length 1.")
    return Exported(existing(path), contents.documents, contents.chunks, size, notices)


def check_whole(contents: Contents, batch: Batch) -> None:
    """Raise FormatError where there is nothing to write, or a vector that cannot be used."""
    if not contents.documents:
        raise FormatError("There is no document to export: the store is empty, or none passes the filters.")
    sums = batch.vectors.sum(axis=1)
    bad = np.flatnonzero(~np.isfinite(sums) | ~batch.vectors.any(axis=1))
    if len(bad):
        node_id = batch.chunks["node_id"][int(bad[0])].as_py()
        raise FormatError(f"The vector of the chunk {node_id!r} is zero or not finite. Embed the document again.")


def _size_notices(documents: int, size: int) -> list[str]:
    if size <= LARGE_BYTES and documents <= LARGE_DOCUMENTS:
        return []
    holds = f"{counted(documents, 'document')} and {size / 1e6:,.0f} MB"
    most = f"{LARGE_DOCUMENTS:,} documents and {LARGE_BYTES / 1e6:,.0f} MB"
    return [f"A .ragmd file of {holds} is slow to load and to compare. The format is made for at most {most}."]


def _file_parts(contents: Contents, batch: Batch, vectors: Vectors) -> Iterator[bytes]:
    """Yield the bytes of the file, in order."""
    count, dimensions = vectors.shape
    head = flat_header(count, dimensions)
    floats = np.ascontiguousarray(vectors, "<f4").data.cast("B") if count else memoryview(b"")
    with ThreadPoolExecutor(1) as worker:
        digest = worker.submit(_sha256, head, floats)  # beside the JSON: hashlib lets other threads run
        policy = most_frequent_policy(batch.sources["chunk_policy"])
        texts = write_documents(batch, policy)
        chunks = [f'{{{reference}, "faiss_id": {number}}}' for number, reference in enumerate(texts.references)]
        documents = [f"{name}: {block}" for name, block in zip(texts.ids, texts.blocks, strict=True)]
        chunks_json = f"[\n{_joined(chunks)}]".encode()
        documents_json = f"{{\n{_joined(documents)}}}".encode()
        header = make_header(contents, batch.sources["chunk_policy"], "IndexFlatIP", digest.result())
    lines = header_texts(header)
    sha256 = contents_hash([line.encode() for line in lines], chunks_json, documents_json)
    front = "".join([*lines, front_matter_line(CONTENTS_HASH, sha256)])
    yield f"---\n{front}---\n\n## Documents\n\n{_overview(batch)}\n## {CHUNKS}\n\n```json\n".encode()
    yield chunks_json
    yield f"\n```\n\n## {DOCUMENTS}\n\n```json\n".encode()
    yield documents_json
    yield f"\n```\n\n## {VECTORS}\n\n```base64\n".encode()
    yield from encode_lines(memoryview(head), HEADER_SIZE)
    yield from encode_lines(floats, line_bytes(dimensions))
    yield b"```\n"


def line_bytes(dimensions: int) -> int:
    """Return the bytes that one line of base64 holds: one vector, or three where only these fill whole characters.

    The 45 bytes before the vectors fill a line of their own, so that no other vector's line changes with one.
    """
    return 4 * dimensions * (1 if dimensions % 3 == 0 else 3)


def _joined(blocks: list[str]) -> str:
    return ",\n".join(blocks) + "\n" if blocks else ""


def _sha256(head: bytes | memoryview, rest: bytes | memoryview) -> str:
    digest = hashlib.sha256(head)
    digest.update(rest)
    return digest.hexdigest()


def contents_hash(
    header_lines: list[bytes], chunks_json: bytes | memoryview, documents_json: bytes | memoryview
) -> str:
    """Return the SHA-256 of the front matter but the line of this, and of what stands between the fences of JSON.

    Carriage returns, which some systems put before the end of a line, do not count.
    """
    digest = hashlib.sha256(hashed_lines(header_lines, CONTENTS_HASH))
    for text in (chunks_json, documents_json):
        digest.update(bytes(text).replace(b"\r", b""))
        digest.update(b"\n")
    return digest.hexdigest()


def _overview(batch: Batch) -> str:
    """Return the table for people, which is never read."""
    counts = dict.fromkeys(batch.sources["doc_id"].to_pylist(), 0)
    for doc_id in batch.chunks["doc_id"].to_numpy().tolist():
        counts[doc_id] += 1
    rows = zip(
        counts,
        batch.sources["file_path"].to_pylist(),
        map(str, counts.values()),
        map(_title, batch.sources["metadata_"].to_pylist()),
        strict=True,
    )
    return table(("Document ID", "Source", "Chunks", "Title"), rows)


def _title(metadata: str) -> str:
    title = json.loads(metadata).get("title") if '"title"' in metadata else ""
    return title if isinstance(title, str) else ""


@contextmanager
def read_ragmd(path: str | os.PathLike[str]) -> Iterator[Contents]:
    """Read a ``.ragmd`` file and yield what it holds; the vectors as they are, of whatever length.

    Raises
    ------
    NotFoundError
        There is no such file.
    FormatError
        It is damaged, edited, too large or of another format.
    """
    yield load_ragmd(existing(path))


def load_ragmd(real: Path) -> Contents:
    """Read a file that is there; see :func:`read_ragmd`."""
    where = str(real)
    size = real.stat().st_size
    if size > MAX_BYTES:
        raise FormatError(f"{where} has {size:,} bytes, more than the {MAX_BYTES:,} that are read. Split it.")
    header, header_lines, sections = split_parts(read_whole(real), where)
    for name in ("format_version", "model_name", "embedding_dim", "vector_count", "document_count"):
        if name not in header:
            raise FormatError(f"{where}: the front matter lacks {name}. Add it, or export the file again.")
    with ThreadPoolExecutor(1) as worker:  # beside the JSON: numpy and hashlib let other threads run
        decoded = worker.submit(_decoded, sections[VECTORS], f"{where}, section ## {VECTORS}")
        check_contents_hash(header, contents_hash(header_lines, sections[CHUNKS], sections[DOCUMENTS]), where)
        references = strict_json(sections[CHUNKS], f"{where}, section ## {CHUNKS}")
        documents = strict_json(sections[DOCUMENTS], f"{where}, section ## {DOCUMENTS}")
        reader = DocumentReader(documents, references, text_of(header, "chunk_policy", where) or None, where)
        index, sha256 = decoded.result()
    _check_index_type(header, index.name, where)
    return reader.contents(header, index, sha256)


def _decoded(text: memoryview, where: str) -> tuple[FlatIndex, str]:
    """Return the index in base64, and its SHA-256."""
    data = decode_lines(text, where)
    return read_flat_index(data, where), hashlib.sha256(data.data).hexdigest()


def _check_index_type(header: Mapping[str, Any], name: str, where: str) -> None:
    named = text_of(header, "index_type", where)
    if named not in ("", "Index", "IndexFlat", "IndexIVF", name) and name != "IndexFlat":
        raise FormatError(f"{where}: index_type is {named!r:.60}, but the vectors are an {name}. Correct the line.")
