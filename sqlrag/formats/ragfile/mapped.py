"""A RAGFile open for reading, searched in the memory map; damaged files as far as they can be read."""

from __future__ import annotations

import mmap
import re
from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn

import numpy as np

from sqlrag import arguments
from sqlrag.engines.duckdb.failures import public
from sqlrag.errors import FormatError, InputError
from sqlrag.formats.ragfile.layout import (
    HEADER,
    KEYWORD,
    OURS,
    VECTOR,
    ByteOrder,
    Section,
    check_bounds,
    mark,
    packed_keyword,
    read_header,
    read_index,
    read_sections,
    unpacked_keyword,
    unpacked_text,
)
from sqlrag.formats.ragfile.reader import Facts, read_facts
from sqlrag.formats.targets import existing
from sqlrag.normalize import without_surrogates

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

_RECORD = re.compile(rb"[^\x00]+")

Span = tuple[int, int]


def salvaged(
    data: mmap.mmap, order: ByteOrder, path: Path
) -> tuple[dict[str, Span], dict[str, Section], list[Span], list[str]]:
    """Return the index, the sections and keyword records that can be read, and notices about the rest."""
    entries: dict[str, Span] = {}
    index_end = HEADER.size
    with suppress(FormatError):
        entries, index_end = read_index(data, path)
    sections: dict[str, Section] = {}
    notices = []
    for name, (start, end) in entries.items():
        with suppress(FormatError):
            sections |= read_sections(data, {name: (start, min(end, len(data) - 1))}, order, path)
        if name == KEYWORD and KEYWORD not in sections and start < len(data):
            # The header is lost; records are separated by NULs only.
            last = min(end, len(data)) - 1
            sections[KEYWORD] = Section(KEYWORD, start, last, max(start, index_end), last, 0)
    if KEYWORD not in sections:
        notices.append("No keywords can be read: there is no such section.")
    if VECTOR not in sections:
        notices.append("No vectors can be read: there is no such section, or its header is damaged.")
    spans, lost = _spans(data, sections.get(KEYWORD), index_end)
    if lost:
        notices.append(f"{lost} pieces of records cannot be read.")
    notices.append(
        f"{len(spans)} keyword records are read. A record without a NUL after it is read together with the next one."
    )
    return entries, sections, spans, notices


def _spans(data: mmap.mmap, section: Section | None, index_end: int) -> tuple[list[Span], int]:
    """Return the spans of readable keyword records, and the number of unreadable pieces."""
    if section is None:
        return [], 0
    pieces = [found.span() for found in _RECORD.finditer(data, section.first, section.last + 1)]
    kept = []
    for start, end in pieces:
        with suppress(UnicodeDecodeError):
            cut = section.padding == 0 and start == index_end  # the rest of a first record that the index overlaps
            if b"-" in data[start:end].replace(b"\xc0\x80", b"\0") and not cut:
                data[start:end].replace(b"\xc0\x80", b"\0").decode("utf-8")
                kept.append((start, end))
    return kept, len(pieces) - len(kept)


def walked(
    data: mmap.mmap, section: Section, dimensions: int, sign: str, path: Path
) -> tuple[NDArray[Any], list[Span]]:
    """Return the vectors of a section ``[records, dimensions]`` and the spans of their contents.

    A record begins at a multiple of the padding after the first one, and its content ends before the first NUL.

    Raises
    ------
    FormatError
        There is no dash where these rules and the dimensions require one.
    """
    number = np.dtype(f"{sign}f{section.precision // 8}")
    width = dimensions * number.itemsize
    if dimensions < 1:
        raise InputError(f"dimensions must be 1 or more, not {dimensions}.")
    vectors, spans, place = [], [], section.first
    while place <= section.last:
        dash = place + width
        if dash > section.last or data[dash : dash + 1] != b"-":
            raise FormatError(
                f"{path}: there is no dash at offset {dash}, after a vector of {dimensions} numbers of "
                f"{section.precision} bits that begins at {place}. The dimensions are wrong, or the file is damaged."
            )
        found = data.find(b"\0", dash, section.last + 1)
        end = section.last + 1 if found < 0 else found
        vectors.append(np.frombuffer(data[place:dash], number))
        spans.append((dash + 1, end))
        place += ((end - place) // section.padding + 1) * section.padding
    return np.stack(vectors) if vectors else np.empty((0, dimensions), number), spans


# Numbers converted at a time, for vectors that are not native float32.
_BLOCK_NUMBERS = 1 << 16


class Record(NamedTuple):
    """A record: its number in its section, the keyword before the dash and the content after it.

    In a file of sqlrag the searches return chunks: the keyword is the ``node_id``, the content its text. ``score`` is
    the cosine in a vector search.
    """

    number: int
    keyword: str
    content: str
    score: float | None = None


@public
class RAGFile:
    """A RAGFile v0.1.0, open for reading. Nothing is loaded: searches read the pages of the file that they need.

    Parameters
    ----------
    path
        The file.
    dimensions
        The length of the vectors, for a file of another writer, which does not contain it.
    salvage
        Read what can be read of a damaged file; ``notices`` describe the rest.

    Attributes
    ----------
    strategies : dict of str to (int, int)
        The first and the last byte of the section of each strategy in the index, known or not.
    byte_order : {"little", "big"}
    dimensions : int or None
        None if neither the file nor the caller gives it.
    settings : mapping
        Model and chunking of a file of sqlrag, else empty.
    notices : list of str

    Raises
    ------
    NotFoundError
        The file does not exist.
    FormatError
        It is not a RAGFile v0.1.0, damaged, or was edited.

    Examples
    --------
    >>> with RAGFile("kb.ragfile") as file:  # doctest: +SKIP
    ...     file.search_keyword("duck", k=3)
    """

    def __reduce__(self) -> NoReturn:
        raise InputError(f"An open RAGFile cannot be pickled or copied. Hand on its path: {str(self.path)!r}.")

    def __init__(self, path: str | os.PathLike[str], *, dimensions: int | None = None, salvage: bool = False) -> None:
        self.path: Path = existing(path)
        self.notices: list[str] = []
        if self.path.stat().st_size < HEADER.size:
            raise FormatError(f"{self.path} is not a RAGFile: it has {self.path.stat().st_size} bytes.")
        with self.path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.facts: Facts | None = None
        self._is_open = True
        self._salvaged: list[Span] | None = None
        self._other_vectors: tuple[NDArray[Any], list[Span]] | None = None
        try:
            self.byte_order: ByteOrder = read_header(self.data, self.path)
            self._expect_reads("RANDOM")  # a few bytes at a time: no read-ahead
            self._open(salvage)
            self._expect_reads("NORMAL")
        except BaseException:
            self.close()
            raise
        self.dimensions = dimensions if self.facts is None else self.facts.layout.dimensions
        self.settings: Mapping[str, str] = {} if self.facts is None else self.facts.settings

    def _expect_reads(self, how: str) -> None:
        """Advise the system on how the map will be read, if it supports that."""
        advice = getattr(mmap, f"MADV_{how}", None)
        if advice is not None:
            self.data.madvise(advice)

    def _open(self, salvage: bool) -> None:
        try:
            self.strategies, index_end = read_index(self.data, self.path)
            check_bounds(self.strategies, index_end, len(self.data), self.path)
            self.sections: dict[str, Section] = read_sections(self.data, self.strategies, self.byte_order, self.path)
            if OURS in self.strategies:
                self.facts = read_facts(self.data, self.strategies[OURS], self.sections, self.byte_order, self.path)
        except FormatError as error:
            if not salvage:
                raise
            self.notices.append(str(error))
            self.strategies, self.sections, self._salvaged, notices = salvaged(self.data, self.byte_order, self.path)
            self.notices += notices

    def close(self) -> None:
        """Close the file. Arrays from ``vectors`` keep the map alive."""
        self.facts = None
        self._other_vectors = None
        self._is_open = False
        with suppress(BufferError):
            self.data.close()

    def _check_open(self) -> None:
        if not self._is_open:
            raise InputError(f"{self.path} is closed. Open it again: RAGFile(path).")

    def __enter__(self) -> RAGFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return the number of chunks of a file of sqlrag, or of keyword records of another one."""
        self._check_open()
        return sum(1 for _ in self._spans()) if self.facts is None else self.facts.chunks

    # Keywords.

    def search_keyword(self, keyword: str, k: int | None = 10) -> list[Record]:
        """Return the chunks that contain a word, or the one of a ``node_id``.

        Parameters
        ----------
        keyword
            A word as in the lexical index (lower case, see the handbook's page on lexical search); of any other text
            the first word is normalized as in that index. There is no stemming.
        k
            How many at most; None for all.

        Returns
        -------
        list of Record
            By the word's share of the BM25 score, the highest first; empty if no chunk contains it. In a file of
            another writer, the records of exactly this keyword, in the order of the file, by a scan of the file.

        Raises
        ------
        InputError
            ``k`` is less than 1.
        FormatError
            A record is not valid: the file is damaged.
        """
        self._check_open()
        keyword = without_surrogates(arguments.text("keyword", keyword))
        k = None if k is None else arguments.whole("k", k, 1)
        if self.facts is None:
            found = (record for record in self._records() if record.keyword == keyword)
            return [record for record, _ in zip(found, range(k or len(self.data)), strict=False)]
        chunks = self._chunks_of(self.facts, keyword, k)
        if not chunks:
            from sqlrag.engines.duckdb.lexical import words_of

            words = words_of([keyword])[0]
            chunks = self._chunks_of(self.facts, words[0], k) if words and words[0] != keyword else []
        return [self.record(number) for number in chunks]

    def _chunks_of(self, facts: Facts, keyword: str, k: int | None) -> list[int]:
        """Return the numbers of the chunks of a keyword as the file writes it."""
        wanted = packed_keyword(keyword)
        order = facts.order
        place = bisect_left(range(len(order)), wanted, key=lambda i: self._pair(int(order[i]))[0])
        chunks: list[int] = []
        while place < len(order):
            number = int(order[place])
            found, content = self._pair(number)
            if found != wanted:
                break
            chunks += [number] if number < facts.chunks else self._numbers(facts, number, content, k)
            place += 1
        return chunks[:k]

    def _numbers(self, facts: Facts, number: int, content: bytes, k: int | None) -> list[int]:
        """Return the first ``k`` numbers of chunks that the record of a word lists."""
        found = content.split(b" ") if k is None else content.split(b" ", k)[:k]
        with suppress(ValueError):
            numbers = [int(digits) for digits in found]
            if all(0 <= chunk < facts.chunks for chunk in numbers):
                return numbers
        raise FormatError(f"{self.path}: the record at offset {facts.offsets[number]} is not a list of chunks.")

    def _pair(self, number: int) -> tuple[bytes, bytes]:
        """Return the encoded keyword and content of a keyword record in a file of sqlrag."""
        assert self.facts is not None  # noqa: S101 - checked by the callers
        section = self.sections[KEYWORD]
        if not 0 <= number < self.facts.records:
            raise FormatError(
                f"{self.path} has {self.facts.records} keyword records, and none with the number {number}."
            )
        start, end = int(self.facts.offsets[number]), int(self.facts.offsets[number + 1])
        if not section.first <= start < end <= section.last + 1 + section.padding:
            raise FormatError(
                f"{self.path}: record {number} has the offsets {start} to {end}, outside of the keyword section."
            )
        keyword, dash, content = self.data[start : min(end, section.last + 1)].rstrip(b"\0").partition(b"-")
        if not dash:
            raise FormatError(f"{self.path}: the record at offset {start} has no dash after its keyword.")
        return keyword, content

    def record(self, number: int) -> Record:
        """Return the keyword record of a number: in a file of sqlrag first the chunks, then the words."""
        self._check_open()
        number = arguments.whole("number", number, 0)
        if self.facts is None:
            for record in self._records():
                if record.number == number:
                    return record
            raise FormatError(f"{self.path} has no keyword record with the number {number}.")
        keyword, content = self._pair(number)
        try:
            return Record(number, unpacked_keyword(keyword), unpacked_text(content))
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.path}: record {number} is not UTF-8: {error}. Copy the file again.") from error

    def _spans(self) -> Iterator[tuple[int, int]]:
        """Yield the spans of the keyword records of another writer's file."""
        if self._salvaged is not None:
            yield from self._salvaged
        elif KEYWORD in self.sections:
            section = self.sections[KEYWORD]
            yield from (found.span() for found in _RECORD.finditer(self.data, section.first, section.last + 1))

    def _records(self) -> Iterator[Record]:
        """Yield the keyword records of another writer's file."""
        for number, (start, end) in enumerate(self._spans()):
            keyword, dash, content = self.data[start:end].partition(b"-")
            try:
                if not dash:
                    raise ValueError("it has no dash after its keyword")
                yield Record(number, keyword.decode("utf-8"), unpacked_text(content))
            except ValueError as error:
                raise FormatError(f"{self.path}: the record at offset {start} cannot be read: {error}.") from error

    # Vectors.

    @property
    def vectors(self) -> NDArray[Any]:
        """The vectors, ``[records, dimensions]``, of the file's precision and byte order: in a file of sqlrag a view of
        the map, whose rows lie at equal distances.
        """  # noqa: D205
        self._check_open()
        if self.facts is None:
            return self._others()[0]
        layout, section = self.facts.layout, self.sections[VECTOR]
        if not self.facts.chunks:
            return np.empty((0, layout.dimensions), layout.number)
        shape, strides = (self.facts.chunks, layout.dimensions), (layout.stride, layout.number.itemsize)
        vectors: NDArray[Any] = np.ndarray(shape, layout.number, self.data, section.first, strides)
        return vectors

    def search_vector(self, vector: ArrayLike, k: int = 10) -> list[Record]:
        """Return the records of the nearest vectors by exact search; digests are not checked here.

        Parameters
        ----------
        vector
            ``[dimensions]``, finite and not zero; it is scaled to length 1.
        k
            How many at most.

        Returns
        -------
        list of Record
            By the inner product with the vector, which is the cosine for vectors of length 1, rounded to 9 decimals;
            ties in the order of the file.

        Raises
        ------
        InputError
            The vector or ``k`` is not valid.
        FormatError
            The file has no vectors, or some that are not finite.
        """
        k = arguments.whole("k", k, 1)
        vectors = self.vectors
        try:
            given = np.asarray(vector, np.float64)
        except (ValueError, TypeError):
            given = np.empty(0)
        length = float(np.linalg.norm(given)) if given.shape == (vectors.shape[1],) else 0.0
        if not 0 < length < np.inf:
            raise InputError(f"The vector must be {vectors.shape[1]} finite numbers that are not all 0.")
        query = given / length
        with np.errstate(over="ignore", invalid="ignore"):
            scores = self._scores(vectors, query.astype(np.float32))
        if not np.isfinite(scores).all():
            bad = int(np.flatnonzero(~np.isfinite(scores))[0])
            raise FormatError(f"{self.path}: the vector of record {bad} is not finite. Export the file again.")
        # Rounding of float32 sums differs from row to row: possible best ones are scored again in float64.
        chosen = np.arange(len(scores))
        if k < len(scores):
            least = np.partition(scores, len(scores) - k)[len(scores) - k]
            margin = 2e-7 * vectors.shape[1] * max(1.0, float(np.abs(scores).max()))
            chosen = np.flatnonzero(scores >= least - margin)
        rows = max(1, _BLOCK_NUMBERS // vectors.shape[1])
        parts = [chosen[first : first + rows] for first in range(0, len(chosen), rows)]
        exact = [np.round((vectors[part].astype(np.float64) * query).sum(axis=1), 9) + 0.0 for part in parts]
        ranked = np.concatenate([np.empty(0), *exact])
        best = np.lexsort((chosen, -ranked))[:k]
        return [self._vector_record(int(chosen[i]), float(ranked[i])) for i in best]

    @staticmethod
    def _scores(vectors: NDArray[Any], query: NDArray[np.float32]) -> NDArray[np.float32]:
        if vectors.dtype == np.dtype(np.float32):
            return vectors @ query
        scores = np.empty(len(vectors), np.float32)
        rows = max(1, _BLOCK_NUMBERS // vectors.shape[1])
        for first in range(0, len(vectors), rows):
            scores[first : first + rows] = vectors[first : first + rows].astype(np.float32) @ query
        return scores

    def _vector_record(self, number: int, score: float | None = None) -> Record:
        if self.facts is not None:
            return self.record(number)._replace(score=score)
        start, end = self._others()[1][number]
        try:
            return Record(number, "", unpacked_text(self.data[start:end]), score)
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.path}: the content at offset {start} is not UTF-8: {error}.") from error

    def _others(self) -> tuple[NDArray[Any], list[Span]]:
        """Return the vectors of another writer's file and the spans of their contents, by a scan of the file."""
        if VECTOR not in self.sections:
            raise FormatError(f"{self.path} has no vectors.")
        if self.dimensions is None:
            raise InputError(
                f"{self.path} does not contain the length of its vectors. Pass it: RAGFile(path, dimensions=...)."
            )
        if self._other_vectors is None:
            self._other_vectors = walked(
                self.data, self.sections[VECTOR], self.dimensions, mark(self.byte_order), self.path
            )
        return self._other_vectors

    def iter_records(self, strategy: Literal["keyword", "vector"] = "keyword") -> Iterator[tuple[Any, str]]:
        """Yield the parts before and after the dash of each record of a section, in the order of the file.

        Keywords are str, vectors arrays ``[dimensions]`` of the file's numbers. In a file of sqlrag the keyword
        section has the chunks (``node_id`` and text), then the words (with the numbers of their chunks), and the
        content of a vector is the number of its chunk.
        """
        self._check_open()
        if strategy not in (KEYWORD, VECTOR):
            raise InputError(f"strategy must be 'keyword' or 'vector', not {strategy!r}.")
        if strategy == VECTOR:
            ours = self.facts is not None
            for number, vector in enumerate(self.vectors):
                yield vector, f"{number:010d}" if ours else self._vector_record(number).content
        else:
            numbered = (self.record(n) for n in range(self.facts.records)) if self.facts else self._records()
            yield from ((record.keyword, record.content) for record in numbered)
