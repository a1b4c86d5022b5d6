"""Writes a RAGFile v0.1.0: texts by node_id, ranked keywords, vectors in one block, then the section of sqlrag."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zlib
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from sqlrag.engines.contents import checked_batches
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA, shown_column
from sqlrag.engines.duckdb.lexical import MACROS
from sqlrag.engines.duckdb.schema import read_sql, run_script
from sqlrag.errors import InputError
from sqlrag.formats.ragfile.layout import (
    HEADER,
    KEYWORD,
    MAGIC,
    OURS,
    VECTOR,
    VERSION,
    ByteOrder,
    mark,
    packed_keyword,
    packed_text,
    padded,
    section_header,
)
from sqlrag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import BinaryIO

    from numpy.typing import NDArray

    from sqlrag.engines.contents import Batch, Contents
    from sqlrag.types import Vectors

_ROWS = 200_000


class Words:
    """Collects the words of chunks and the keywords of records, in a database as they may exceed the memory."""

    def __init__(self, con: duckdb.DuckDBPyConnection, heading_weight: float) -> None:
        self._con = con
        self._weight = heading_weight

    def add_chunks(self, first: int, batch: Batch) -> None:
        """Add the chunks of a batch, numbered from ``first``."""
        numbers = pa.array(np.arange(first, first + len(batch.chunks)))
        shown = pa.array(shown_column(batch.sources, batch.chunks), pa.string())
        table = batch.chunks.select(["text", "heading_path", "chunk_index", "metadata_", "tags"]).append_column(
            "shown", shown
        )
        self._con.register("documents", table.add_column(0, "rid", numbers))
        run_script(self._con, "index/choose_new", first=first, end=None)
        run_script(self._con, "index/stage_tokens")
        self._con.execute("INSERT INTO found SELECT rid, word, tf, heading_tf, len, heading_len FROM staged_tokens")
        self._con.unregister("documents")

    def add_keywords(self, first: int, keywords: Sequence[bytes]) -> None:
        """Add the packed keywords of records, numbered from ``first``."""
        numbers = np.arange(first, first + len(keywords))
        self._con.register("new_keywords", pa.table({"number": numbers, "keyword": pa.array(keywords, pa.binary())}))
        self._con.execute("INSERT INTO keywords FROM new_keywords")
        self._con.unregister("new_keywords")

    def postings(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield words in the order of their code points, with the numbers of their chunks, the best first."""
        self._con.execute(
            "CREATE TABLE words AS SELECT word, row_number() OVER (ORDER BY word) - 1 AS place "
            "FROM (SELECT DISTINCT word FROM found)"
        )
        words = [row[0] for row in self._con.execute("SELECT word FROM words ORDER BY place").fetchall()]
        con = self._con.cursor()  # referenced: DuckDB 1.3.2 frees the rows with it
        rows = con.sql(read_sql("exchange/ranked_words"), params={"heading_weight": self._weight})
        read = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader  # the old name, on 1.3.2
        places, numbers = np.empty(0, np.int64), np.empty(0, np.int64)
        for batch in read(_ROWS):
            places = np.concatenate([places, batch["place"].to_numpy()])
            numbers = np.concatenate([numbers, batch["number"].to_numpy()])
            # The last word may continue in the next batch.
            whole = int(np.searchsorted(places, places[-1]))
            yield _lists(words, places[:whole], numbers[:whole])
            places, numbers = places[whole:], numbers[whole:]
        yield _lists(words, places, numbers)

    def order(self) -> NDArray[np.uint32]:
        """Return the numbers of the records in the order of their keywords' bytes, then of the numbers."""
        rows = self._con.sql("SELECT number FROM keywords ORDER BY keyword, number").to_arrow_table()
        order: NDArray[np.uint32] = rows["number"].to_numpy().astype(np.uint32)
        return order


def _lists(words: Sequence[str], places: NDArray[np.int64], numbers: NDArray[np.int64]) -> tuple[list[str], list[str]]:
    """Return the words of a run of rows, and the numbers of each as text."""
    starts = np.flatnonzero(np.diff(places, prepend=-1)).tolist()
    texts = list(map(str, numbers.tolist()))
    found = [words[int(places[start])] for start in starts]
    return found, [" ".join(texts[start:end]) for start, end in pairwise([*starts, len(texts)])]


@contextmanager
def collected_words(folder: Path, heading_weight: float) -> Iterator[Words]:
    """Yield a collector of words with a database in ``folder``, which is created and removed."""
    folder.mkdir()
    try:
        with duckdb.connect(str(folder / "words.duckdb"), config={"memory_limit": "1GB"}) as con:
            con.execute(read_sql("lexical_index"))
            for name in MACROS:
                con.execute(read_sql(f"macros/{name}"))
            con.execute(
                "CREATE TABLE found (rid BIGINT, word VARCHAR, tf INTEGER, heading_tf INTEGER, len INTEGER, "
                "heading_len INTEGER)"
            )
            con.execute("CREATE TABLE keywords (number BIGINT, keyword BLOB)")
            yield Words(con, heading_weight)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Reserved for header and index: three entries with the longest numbers take 170 bytes.
_RESERVED = 192

# The first vector is aligned to it: numpy copies unaligned floats, and cache lines have 64 bytes.
_ALIGNMENT = 64

DIGITS = 10

"""The content of an embedding record is the number of its chunk in so many digits, so that all have the same length."""

# The columns in the blocks of the section "sqlrag": all that are not in the records.
SOURCE_COLUMNS = tuple(name for name in SOURCE_SCHEMA.names if name != "text")

CHUNK_COLUMNS = tuple(name for name in CHUNK_SCHEMA.names if name not in ("node_id", "text", "collection"))


@dataclass(frozen=True)
class Layout:
    """The layout of a file: bits of a number, byte order, padding, length of the vectors."""

    precision: int
    byte_order: ByteOrder
    padding: int
    dimensions: int

    @property
    def number(self) -> np.dtype[Any]:
        """The type of the numbers in the file."""
        return np.dtype(f"{mark(self.byte_order)}f{self.precision // 8}")

    @property
    def record(self) -> int:
        """The bytes of an embedding record: vector, dash, number of the chunk."""
        return self.dimensions * self.precision // 8 + 1 + DIGITS

    @property
    def stride(self) -> int:
        """The bytes from one embedding record to the next."""
        return len(padded(bytes(self.record), self.padding))


class _Spool:
    """A section in a temporary file: its size is known only at the end, and the index comes before it.

    ``digest`` covers all that was written, ``size`` excludes the padding after the last record.
    """

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._file: IO[bytes] = stack.enter_context(tempfile.TemporaryFile(dir=folder))  # noqa: SIM115
        self.digest = hashlib.sha256()
        self.size = 0
        self.sizes: list[NDArray[np.int64]] = []

    def add(self, data: bytes, *, padding: int = 0) -> None:
        """Append bytes, of which the last ``padding`` are NULs that count only if others follow."""
        if data:
            self._file.write(data)
            self.digest.update(data)
            self.size = self._file.tell() - padding

    def add_records(self, records: Sequence[bytes], padding: int) -> None:
        """Append records, each with its NULs, and record their sizes."""
        if records:
            whole = [padded(record, padding) for record in records]
            self.add(b"".join(whole), padding=len(whole[-1]) - len(records[-1]))
            self.sizes.append(np.fromiter(map(len, whole), np.int64, len(whole)))

    def copy_to(self, file: BinaryIO) -> None:
        """Append it to a file."""
        self._file.truncate(self.size)
        self._file.seek(0)
        shutil.copyfileobj(self._file, file, 1 << 20)


def write_sections(contents: Contents, file: BinaryIO, layout: Layout) -> None:
    """Write contents as a RAGFile, with temporary files of about its size in the same folder."""
    path = Path(file.name)
    with ExitStack() as stack:
        keywords, vectors, blocks = (_Spool(stack, path.parent) for _ in range(3))
        weight = float(contents.settings.get("header_weight", 3))
        words = stack.enter_context(collected_words(path.with_name(path.name + ".words"), weight))
        chunks = documents = count = 0
        for batch in checked_batches(contents):
            names = [packed_keyword(name) for name in batch.chunks["node_id"].to_pylist()]
            texts = map(packed_text, batch.chunks["text"].to_pylist())
            keywords.add_records([name + b"-" + text for name, text in zip(names, texts, strict=True)], layout.padding)
            words.add_keywords(chunks, names)
            words.add_chunks(chunks, batch)
            vectors.add(vector_records(batch.vectors, chunks, layout), padding=layout.stride - layout.record)
            blocks.add(_block(batch, layout))
            documents += len(batch.sources)
            chunks += len(batch.chunks)
            count += 1
        records = chunks + _add_words(keywords, words, chunks, layout.padding)
        facts = {
            "layout": 1,
            "generator": f"sqlrag {__version__}",
            "settings": dict(contents.settings),
            "updated_at": contents.updated_at,
            "dimensions": contents.dimensions,
            "documents": documents,
            "chunks": chunks,
            "records": records,
            "blocks": count,
        }
        _assemble(file, layout, facts, (keywords, vectors, blocks), words)


def _add_words(keywords: _Spool, words: Words, first: int, padding: int) -> int:
    """Append a record for every word, and return their number."""
    added = 0
    for found, numbers in words.postings():
        names = [packed_keyword(word) for word in found]
        keywords.add_records([name + b"-" + n.encode() for name, n in zip(names, numbers, strict=True)], padding)
        words.add_keywords(first + added, names)
        added += len(names)
    return added


def vector_records(vectors: Vectors, first: int, layout: Layout) -> bytes:
    """Return the embedding records of chunks, numbered from ``first``."""
    records = np.zeros((len(vectors), layout.stride), np.uint8)
    with np.errstate(over="ignore"):
        floats = vectors.astype(layout.number)
    if not (np.isfinite(floats).all() and floats.any(axis=1).all()):
        raise InputError("The file has vectors that do not fit into 16-bit numbers. Pass precision=32.")
    records[:, : layout.record - DIGITS - 1] = floats.view(np.uint8).reshape(len(vectors), layout.record - DIGITS - 1)
    records[:, layout.record - DIGITS - 1] = ord("-")
    records[:, layout.record - DIGITS : layout.record] = number_digits(first, len(vectors))
    return records.tobytes()


def number_digits(first: int, count: int) -> NDArray[np.uint8]:
    """Return the numbers from ``first`` on as ASCII digits, ``[count, DIGITS]``."""
    numbers = np.arange(first, first + count)[:, None]
    return (numbers // 10 ** np.arange(DIGITS - 1, -1, -1) % 10 + ord("0")).astype(np.uint8)


# The section "sqlrag".


def _block(batch: Batch, layout: Layout) -> bytes:
    """Return the columns of a batch that are not in the records: packed and unpacked length, JSON packed by zlib."""
    sources = _columns(batch.sources, SOURCE_COLUMNS)
    sources["modified_at"] = [None if time is None else time.isoformat() for time in sources["modified_at"]]
    chunks = _columns(batch.chunks, CHUNK_COLUMNS)
    places = {doc_id: place for place, doc_id in enumerate(sources["doc_id"])}
    chunks["document"] = [places[doc_id] for doc_id in chunks.pop("doc_id")]
    spans: list[list[tuple[int, int]]] = [[] for _ in places]
    for place, start, end in zip(chunks["document"], chunks["i_start"], chunks["i_end"], strict=True):
        if start is not None:
            spans[place].append((start, end))
    sources["gaps"] = [gaps(text, found) for text, found in zip(batch.sources["text"].to_pylist(), spans, strict=True)]
    text = json.dumps({"sources": sources, "chunks": chunks}, ensure_ascii=False, sort_keys=True, allow_nan=False)
    raw = text.encode("utf-8")
    packed = zlib.compress(raw, 6)
    lengths = np.array([len(packed), len(raw)], np.dtype(f"{mark(layout.byte_order)}u8"))
    return lengths.tobytes() + packed


def _columns(table: pa.Table, names: Sequence[str]) -> dict[str, list[Any]]:
    return {name: table[name].to_pylist() for name in names}


def gaps(text: str, spans: Sequence[tuple[int, int]]) -> list[str]:
    """Return the parts of a text that are not covered by spans, in order.

    Examples
    --------
    >>> gaps("# Ponds and ducks", [(2, 7), (5, 11)])
    ['# ', ' ducks']
    """
    left, reached = [], 0
    for start, end in sorted(spans):
        if start > reached:
            left.append(text[reached:start])
        reached = max(reached, end)
    return [*left, text[reached:]] if reached < len(text) else left


def _assemble(
    file: BinaryIO, layout: Layout, facts: dict[str, Any], spools: tuple[_Spool, _Spool, _Spool], words: Words
) -> None:
    """Write the sections, separated by one NUL, and before them the index."""
    keywords, vectors, blocks = spools
    head = {kind: section_header(kind, layout.byte_order) for kind in (KEYWORD, VECTOR)}
    beyond = _RESERVED + head[KEYWORD].size + keywords.size + 1 + head[VECTOR].size
    first = _RESERVED + -beyond % _ALIGNMENT + head[KEYWORD].size
    last = first + keywords.size - 1
    vector_first = last + 2 + head[VECTOR].size
    vector_last = vector_first + vectors.size - 1
    ours = vector_last + 2

    headers = b""
    digests = {}
    file.write(bytes(first - head[KEYWORD].size))  # the index is written at the end
    for kind, spool, fields in (
        (KEYWORD, keywords, (first, last, layout.padding)),
        (VECTOR, vectors, (layout.precision, vector_first, vector_last, layout.padding)),
    ):
        header = head[kind].pack(*fields)
        headers += header
        file.write(header)
        spool.copy_to(file)
        file.write(b"\0")
        digests[kind] = spool.digest.hexdigest()

    sign = mark(layout.byte_order)
    sizes = np.concatenate([np.zeros(1, np.int64), *keywords.sizes])
    tables = (first + np.cumsum(sizes)).astype(f"{sign}u8").tobytes() + words.order().astype(f"{sign}u4").tobytes()
    facts["sha256"] = {**digests, "tables": hashlib.sha256(tables).hexdigest(), "blocks": blocks.digest.hexdigest()}
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, allow_nan=False).encode("utf-8")
    own = np.array([len(text)], f"{sign}u8").tobytes() + text
    end = ours + len(own) + hashlib.sha256().digest_size + len(tables) + blocks.size - 1

    entries = ((KEYWORD, first - head[KEYWORD].size, last), (VECTOR, last + 2, vector_last), (OURS, ours, end))
    index = b"".join(f"{name}-({begin},{finish})".encode() + b"\0" for name, begin, finish in entries)
    beginning = HEADER.pack(MAGIC, *VERSION, layout.byte_order == "big") + index
    beginning += bytes(first - head[KEYWORD].size - len(beginning))
    file.write(own + hashlib.sha256(beginning + headers + own).digest() + tables)
    blocks.copy_to(file)
    file.seek(0)
    file.write(beginning)
