"""``.ragmd``: a store as one Markdown file, with its documents as JSON and its vectors as a FAISS index in base64."""

from __future__ import annotations

import binascii
import hashlib
import json
import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlrag.arguments import counted
from sqlrag.engines.contents import Contents, whole_at_unit_length
from sqlrag.engines.duckdb.failures import public
from sqlrag.errors import FormatError
from sqlrag.formats.exchange import stored_contents, write_store
from sqlrag.formats.flat_index import HEADER_SIZE, FlatIndex, flat_parts, flat_sha256, read_flat_index
from sqlrag.formats.json_documents import (
    CONTENTS_HASH,
    DocumentReader,
    check_contents_hash,
    make_header,
    most_frequent_policy,
    text_of,
    write_documents,
)
from sqlrag.formats.targets import Exported, existing, exported, new_output, read_whole
from sqlrag.strict_json import strict_json

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from mmap import mmap
    from pathlib import Path

    from numpy.typing import NDArray

    from sqlrag.engines.contents import Batch
    from sqlrag.formats.exchange import Imported
    from sqlrag.types import AnyEmbedder

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

_BLOCK = 1 << 20  # bytes processed at once: few calls, and the data stay in the processor's cache

_NONE = 0xFFFF


def encode_lines(data: memoryview, line_bytes: int) -> Iterator[bytes]:
    """Yield base64 with a newline after each ``line_bytes`` (a multiple of 3) of ``data``."""
    whole = len(data) // line_bytes * line_bytes
    step = max(1, _BLOCK // line_bytes) * line_bytes
    for first in range(0, whole, step):
        encoded = np.frombuffer(binascii.b2a_base64(data[first : min(first + step, whole)], newline=False), np.uint8)
        rows = encoded.reshape(-1, line_bytes // 3 * 4)
        lines = np.full((rows.shape[0], rows.shape[1] + 1), ord("\n"), np.uint8)
        lines[:, :-1] = rows
        yield lines.tobytes()
    if len(data) > whole:
        yield binascii.b2a_base64(data[whole:])


def decode_lines(text: memoryview, where: str) -> NDArray[np.uint8]:
    """Return the bytes of base64 in lines of any length; the 46th byte is aligned to 16 bytes.

    Raises
    ------
    FormatError
        A character is not base64, or characters are missing.
    """
    data = np.empty(3 + len(text) // 4 * 3 + 3, np.uint8)[3:]  # numpy's own allocations are aligned
    rest = b""
    end = 0
    for first in range(0, len(text), _BLOCK):
        block = rest + b"".join(bytes(text[first : first + _BLOCK]).split())
        # The last four characters may be padded, so they are decoded at the end.
        cut = max(0, len(block) - 1) // 4 * 4
        rest = block[cut:]
        _decode(block[:cut], data[end : end + cut // 4 * 3], where)
        end += cut // 4 * 3
    last = _decode_last(rest, where)
    data[end : end + len(last)] = np.frombuffer(last, np.uint8)
    return data[: end + len(last)]


def _decode(text: bytes, data: NDArray[np.uint8], where: str) -> None:
    """Decode characters without any padding, two at a time by a table."""
    if not text:
        return
    halves = _values().take(np.frombuffer(text, np.uint16)).reshape(-1, 2)
    if halves.max() == _NONE:
        wrong = text.translate(None, _ALPHABET)[:1].decode("latin-1")
        raise FormatError(f"{where} contains {wrong!r}, which is not base64. It was edited; export it again.")
    groups = data.reshape(-1, 3)
    high, low = halves[:, 0], halves[:, 1]
    np.right_shift(high, 4, out=groups[:, 0], casting="unsafe")
    np.bitwise_or(high << 4, low >> 8, out=groups[:, 1], casting="unsafe")
    groups[:, 2] = low


def _decode_last(text: bytes, where: str) -> bytes:
    """Decode the last four characters, which may be padded."""
    try:
        last = binascii.a2b_base64(text)
    except binascii.Error:
        last = b""
    if binascii.b2a_base64(last, newline=False) != text:
        raise FormatError(
            f"{where} ends with {text[-20:]!r}, which is not complete base64. It is truncated or was edited."
        )
    return last


@cache
def _values() -> NDArray[np.uint16]:
    """Return the 12 bits of each pair of characters, by their two bytes in memory; _NONE if they are not base64."""
    letters = np.frombuffer(_ALPHABET, np.uint8)
    pairs = np.stack([np.repeat(letters, 64), np.tile(letters, 64)], axis=1)
    table = np.full(1 << 16, _NONE, np.uint16)
    table[np.ascontiguousarray(pairs).view(np.uint16).reshape(-1)] = np.arange(1 << 12)
    return table


CHUNKS, DOCUMENTS, VECTORS = "Chunks", "Document Metadata", "Vectors"

_LANGUAGES = {CHUNKS: b"json", DOCUMENTS: b"json", VECTORS: b"base64"}

_OTHER_NAMES = {"Vectors (Base64)": VECTORS}

_BOM = b"\xef\xbb\xbf"

_MARK = b"---"

_MAX_FRONT_MATTER = 1 << 20

# Characters that YAML does not allow unescaped, or treats as line ends; otherwise JSON strings are valid YAML.
_ESCAPED = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff\ufffe\uffff]")


class Parts(NamedTuple):
    """The front matter as a mapping and as lines, and the text between the fences of each section."""

    header: dict[str, Any]
    header_lines: list[bytes]
    sections: dict[str, memoryview]


def split_parts(data: bytes | mmap, where: str) -> Parts:
    """Split a file into its parts.

    Raises
    ------
    FormatError
        There is no front matter, or a section is missing, occurs twice, or has no fences.
    """
    lines, place = _front_matter(data, where)
    header = _parse_yaml(b"".join(lines), where)
    return Parts(header, lines, _sections(data, place, where))


def front_matter_line(name: str, value: object) -> str:
    """Return a line of front matter: strings are quoted, so that YAML does not parse them as other types."""
    if not isinstance(value, str):
        return f"{name}: {json.dumps(value)}\n"
    quoted = _ESCAPED.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
    return f"{name}: {quoted}\n"


def has_front_matter(beginning: bytes) -> bool:
    """Return whether a file starts like a ``.ragmd`` file."""
    lines = [line.rstrip() for line in beginning.removeprefix(_BOM).split(b"\n")]
    if lines[0] != _MARK:
        return False
    block = lines[1 : lines.index(_MARK, 1)] if _MARK in lines[1:] else lines[1:]
    return all(any(line.startswith(name) for line in block) for name in (b"format_version:", b"embedding_dim:"))


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a Markdown table with one line for each row, for any content of the cells."""
    names = list(header)
    lines = [names, ["-" * max(3, len(name)) for name in names], *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines)


def _cell(text: str) -> str:
    cell = text[:400]
    if not cell.isprintable():
        cell = "".join(char if char.isprintable() else " " for char in cell)
    cell = " ".join(cell.split())
    return (cell if len(cell) <= 120 else cell[:119] + "…").replace("\\", "\\\\").replace("|", "\\|")


def _front_matter(data: bytes | mmap, where: str) -> tuple[list[bytes], int]:
    """Return the lines between the marks, and where the rest begins."""
    place = len(_BOM) if data[: len(_BOM)] == _BOM else 0
    lines: list[bytes] = []
    while place < len(data):
        end = data.find(b"\n", place, place + _MAX_FRONT_MATTER)
        line = data[place:] if end < 0 else data[place:end]
        if not lines and line.rstrip() != _MARK:
            break
        place = len(data) if end < 0 else end + 1
        if lines and line.rstrip() == _MARK:
            return lines[1:], place
        lines.append(line.rstrip(b"\r") + b"\n")
        if place > _MAX_FRONT_MATTER:
            break
    raise FormatError(
        f"{where}: Missing frontmatter: a .ragmd file begins with a line ---, some settings, and another line ---. "
        "It is truncated, or of another format."
    )


def _parse_yaml(text: bytes, where: str) -> dict[str, Any]:
    """Parse plain values only: YAML tags cannot create objects."""
    import yaml

    class Loader(yaml.SafeLoader):
        """Refuses aliases: nested ones expand to gigabytes, and no setting needs one."""

        def compose_node(self, parent: Any, index: Any) -> Any:
            if self.check_event(yaml.AliasEvent):
                raise ValueError("it has an alias (*), which no setting needs")
            return super().compose_node(parent, index)

    try:
        loader = Loader(text)
        try:
            node = loader.get_single_node()
            header = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    # PyYAML raises its own errors, KeyError and others on invalid input.
    except Exception as error:
        mark = getattr(error, "problem_mark", None)
        line = "" if mark is None else f", line {mark.line + 2}"
        problem = " ".join(str(getattr(error, "problem", None) or error).split())
        raise FormatError(f"{where}{line}: the front matter is not valid YAML: {problem:.200}.") from error
    if not isinstance(header, dict) or not isinstance(node, yaml.MappingNode):
        raise FormatError(f"{where}: Missing frontmatter: there are no names with values between the lines ---.")
    names = [str(key.value) for key, _ in node.value]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise FormatError(f"{where}: {twice} occurs in the front matter more than once. Remove one of them.")
    return header


def _sections(data: bytes | mmap, place: int, where: str) -> dict[str, memoryview]:
    """Return the text between the fences of the sections that are read."""
    sections: dict[str, memoryview] = {}
    view = memoryview(data)
    current = ""
    while place < len(data):
        end = data.find(b"\n", place)
        end = len(data) if end < 0 else end
        line = data[place:end].rstrip()
        if line.startswith(b"## "):
            name = line[3:].strip().decode("utf-8", "replace")
            current = _OTHER_NAMES.get(name, name)
            if current in sections:
                raise FormatError(f"{_at(data, place, where)}: a second section ## {name}. Remove one of them.")
        elif line.startswith(b"```"):
            close, after = _closing_fence(data, end, line, where)
            if current in _LANGUAGES:
                if current in sections or line.strip(b"`").strip().lower() != _LANGUAGES[current]:
                    raise FormatError(
                        f"{_at(data, place, where)}: section ## {current} must have one block, which begins with "
                        f"```{_LANGUAGES[current].decode()}, not {line.decode('utf-8', 'replace')!r:.40}."
                    )
                sections[current] = view[end + 1 : close]
            end = after
        place = end + 1
    missing = next((name for name in _LANGUAGES if name not in sections), None)
    if missing is not None:
        raise FormatError(
            f"{where}: section ## {missing} with its ```{_LANGUAGES[missing].decode()} block is missing. The file is "
            "truncated; export it again."
        )
    return sections


def _closing_fence(data: bytes | mmap, end: int, opening: bytes, where: str) -> tuple[int, int]:
    """Return the ends of a block's text and of its closing line; its opening line ends at ``end``."""
    fence = opening[: len(opening) - len(opening.lstrip(b"`"))]
    # Base64 has no backticks, and searching a single character is much faster.
    close = max(end, data.find(b"`", end) - 1) if opening.endswith(b"base64") else end
    while (close := data.find(b"\n" + fence, close)) >= 0:
        after = data.find(b"\n", close + 1)
        after = len(data) if after < 0 else after
        if not data[close + 1 : after].rstrip().strip(b"`"):
            return close, after
        close += 1
    raise FormatError(
        f"{_at(data, end, where)}: the block that begins here has no end. The file is truncated; export it again."
    )


def _at(data: bytes | mmap, place: int, where: str) -> str:
    line = data[:place].count(b"\n") + 1
    return f"{where}, line {line}"


def hashed_lines(header_lines: Iterable[bytes], left_out: str) -> bytes:
    """Return the lines of front matter, without one."""
    return b"".join(line for line in header_lines if not line.startswith(f"{left_out}:".encode()))


def header_texts(header: Mapping[str, object]) -> list[str]:
    """Return a header as lines of front matter."""
    return [front_matter_line(name, value) for name, value in header.items()]


MAX_BYTES = 2_000_000_000

"""Larger files are not written or read: a file has to fit into memory several times."""

LARGE_BYTES = 500_000_000

LARGE_DOCUMENTS = 10_000

"""Above these limits the format is unsuitable, and a notice says so."""

_BEGINNING = 1 << 16


def is_ragmd(path: str | os.PathLike[str]) -> bool:
    """Return whether a file of any name is a ``.ragmd`` file, by the names in its front matter."""
    with existing(path).open("rb") as file:
        return has_front_matter(file.read(_BEGINNING))


@public
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

    The same store gives the same bytes. Each chunk has a line, and each vector or three vectors, so that a diff of two
    exports shows the changes.

    Parameters
    ----------
    db_path
        The store.
    path
        The file to write, usually with the suffix ``.ragmd``. It is complete or absent.
    collection, tags_any, tags_all, metadata
        Whole documents are chosen of which the document or a chunk passes these filters.
    overwrite
        Replace a ``.ragmd`` file. A file of another kind is never replaced.

    Returns
    -------
    Exported
        ``path``, ``documents``, ``chunks``, ``size_bytes`` and ``notices``.

    Raises
    ------
    InputError
        A filter has a wrong type.
    NotFoundError, StoreError and its kinds
        The store cannot be read, or the file cannot be written.
    FormatError
        No document passes the filters, it would be larger than 2 GB, metadata contain NaN, or an existing file is of
        another kind.
    """
    with stored_contents(db_path, collection, tags_any, tags_all, metadata) as contents:
        return write_ragmd(contents, path, overwrite=overwrite)


@public
def import_ragmd(
    path: str | os.PathLike[str],
    db_path: str | os.PathLike[str],
    *,
    embedder: AnyEmbedder | None = None,
    overwrite: bool = False,
) -> Imported:
    """Import a ``.ragmd`` file into a store, new or existing; documents of the same ids are replaced.

    Parameters
    ----------
    path
        The file, of any name: written by sqlrag or by another program.
    db_path
        The store. An existing one must have vectors of the same model.
    embedder
        The embedder of the vectors, for a file that does not identify its model; it is verified.
    overwrite
        Replace the store if it exists.

    Returns
    -------
    Imported
        ``path``, ``documents``, ``chunks``, ``created`` and ``notices``.

    Raises
    ------
    InputError
        The store has a document of the same id as a row of a table; it is unchanged.
    NotFoundError
        The file does not exist.
    FormatError
        It is damaged, edited or of another format; the store is unchanged.
    ModelMismatchError
        Its model is not that of the store, or its vectors are not of ``embedder``.
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
            f"A .ragmd file of {contents.chunks:,} vectors would take at least {expected:,} bytes, over the limit of "
            f"{MAX_BYTES:,}. Choose fewer documents, or a format for large stores, such as Parquet."
        )
    with new_output(path, overwrite=overwrite, is_ours=is_ragmd, kind=".ragmd file") as file:
        batch, scaled = whole_at_unit_length(contents)
        size = 0
        for part in _file_parts(contents, batch):
            size += file.write(part)
        if size > MAX_BYTES:
            raise FormatError(f"The .ragmd file would be larger than {MAX_BYTES:,} bytes. Choose fewer documents.")
    return exported(contents, existing(path), notices=[*_size_notices(contents.documents, size), *scaled])


def _size_notices(documents: int, size: int) -> list[str]:
    if size <= LARGE_BYTES and documents <= LARGE_DOCUMENTS:
        return []
    counts = f"{counted(documents, 'document')} and {size / 1e6:,.0f} MB"
    most = f"{LARGE_DOCUMENTS:,} documents and {LARGE_BYTES / 1e6:,.0f} MB"
    return [f"A .ragmd file of {counts} is slow to load and to compare. The format is meant for at most {most}."]


def _file_parts(contents: Contents, batch: Batch) -> Iterator[bytes]:
    """Yield the bytes of the file, in order."""
    head, floats = flat_parts(batch.vectors)
    with ThreadPoolExecutor(1) as worker:
        digest = worker.submit(flat_sha256, head, floats)  # in parallel with the JSON: hashlib releases the GIL
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
    yield from encode_lines(floats, line_bytes(contents.dimensions))
    yield b"```\n"


def line_bytes(dimensions: int) -> int:
    """Return the bytes in one line of base64: one vector, or three if only these fill whole characters.

    The 45 bytes before the vectors have a line of their own, so that a changed vector changes only its line.
    """
    return 4 * dimensions * (1 if dimensions % 3 == 0 else 3)


def _joined(blocks: list[str]) -> str:
    return ",\n".join(blocks) + "\n" if blocks else ""


def contents_hash(
    header_lines: list[bytes], chunks_json: bytes | memoryview, documents_json: bytes | memoryview
) -> str:
    """Return the SHA-256 of the front matter without its own line, and of the text between the JSON fences.

    Carriage returns are ignored, since some systems add them at line ends.
    """
    digest = hashlib.sha256(hashed_lines(header_lines, CONTENTS_HASH))
    for text in (chunks_json, documents_json):
        digest.update(bytes(text).replace(b"\r", b""))
        digest.update(b"\n")
    return digest.hexdigest()


def _overview(batch: Batch) -> str:
    """Return the table for people; it is not parsed."""
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
    """Read a ``.ragmd`` file and yield its contents, with vectors of any length.

    Raises
    ------
    NotFoundError
        The file does not exist.
    FormatError
        It is damaged, edited, too large or of another format.
    """
    yield load_ragmd(existing(path))


def load_ragmd(real: Path) -> Contents:
    """Read an existing file; see :func:`read_ragmd`."""
    where = str(real)
    size = real.stat().st_size
    if size > MAX_BYTES:
        raise FormatError(f"{where} has {size:,} bytes, more than the limit of {MAX_BYTES:,}. Split it.")
    header, header_lines, sections = split_parts(read_whole(real), where)
    for name in ("format_version", "model_name", "embedding_dim", "vector_count", "document_count"):
        if name not in header:
            raise FormatError(f"{where}: the front matter lacks {name}. Add it, or export the file again.")
    with ThreadPoolExecutor(1) as worker:  # in parallel with the JSON: numpy and hashlib release the GIL
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
