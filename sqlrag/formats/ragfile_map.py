"""A RAGFile open for reading: searched by keyword and by vector straight from the memory map."""

from __future__ import annotations

import mmap
import re
from bisect import bisect_left
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from sqlrag import options
from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import FormatError, InputError
from sqlrag.formats.files import existing
from sqlrag.formats.ragfile_layout import (
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
from sqlrag.formats.ragfile_reading import Facts, read_facts
from sqlrag.formats.ragfile_salvaging import Span, salvaged, walked

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from numpy.typing import ArrayLike, NDArray

# Rows of vectors that are not of this machine's float32: turned into it so many numbers at a time.
_BLOCK_NUMBERS = 1 << 16
_RECORD = re.compile(rb"[^\x00]+")


class Record(NamedTuple):
    """A record: its number in its section, the keyword before the dash and the content after it.

    In a file that sqlrag wrote, what the searches return are chunks: the keyword is the ``node_id``, the content its
    text. ``score`` is the cosine where a vector was searched for.
    """

    number: int
    keyword: str
    content: str
    score: float | None = None


class RAGFile:
    """A RAGFile v0.1.0, open for reading. Nothing of it is loaded: searches read the pages of the file they need.

    Parameters
    ----------
    path
        The file.
    dimensions
        The length of the vectors, for a file of another writer, which does not say it.
    salvage
        Read what can be read of a damaged file; ``notices`` say what cannot.

    Attributes
    ----------
    strategies : dict of str to (int, int)
        The first and the last byte of the section of each strategy that the index names, known or not.
    byte_order : {"little", "big"}
    dimensions : int or None
        None where neither the file nor the caller says it.
    settings : mapping
        What a file of sqlrag says of its model and of how it was cut, else nothing.
    notices : list of str

    Raises
    ------
    NotFoundError
        There is no such file.
    FormatError
        It is no RAGFile v0.1.0, damaged, or was edited.

    Examples
    --------
    >>> with RAGFile("kb.ragfile") as file:  # doctest: +SKIP
    ...     file.search_keyword("duck", k=3)
    """

    def __init__(self, path: str | os.PathLike[str], *, dimensions: int | None = None, salvage: bool = False) -> None:
        self.path: Path = existing(path)
        self.notices: list[str] = []
        if self.path.stat().st_size < HEADER.size:
            raise FormatError(f"{self.path} is no RAGFile: it has {self.path.stat().st_size} bytes.")
        with self.path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self.facts: Facts | None = None
        self._is_open = True
        self._salvaged: list[Span] | None = None
        self._other_vectors: tuple[NDArray[Any], list[Span]] | None = None
        try:
            self.byte_order: ByteOrder = read_header(self.data, self.path)
            self._expect_reads("RANDOM")  # a few bytes here and there: no need to fetch what lies behind them
            self._open(salvage)
            self._expect_reads("NORMAL")
        except BaseException:
            self.close()
            raise
        self.dimensions = dimensions if self.facts is None else self.facts.layout.dimensions
        self.settings: Mapping[str, str] = {} if self.facts is None else self.facts.settings

    def _expect_reads(self, how: str) -> None:
        """Tell the system how the map will be read, where it can be told."""
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
        """Let go of the file. Arrays taken from ``vectors`` keep the map until they go."""
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
        """Return how many chunks a file of sqlrag holds, or how many keyword records another one."""
        self._check_open()
        return sum(1 for _ in self._spans()) if self.facts is None else self.facts.chunks

    # Keywords.

    def search_keyword(self, keyword: str, k: int | None = 10) -> list[Record]:
        """Return the chunks that hold a word, or the one of a ``node_id``.

        Parameters
        ----------
        keyword
            A word as the lexical index writes it (lower case, see the handbook's page on lexical search); another
            spelling is looked for as that index would write its first word. Stems count as words of their own.
        k
            How many at most; None for all.

        Returns
        -------
        list of Record
            By what the word adds to the BM25 score of the chunk, the greatest first; empty where no chunk holds it. In
            a file of another writer, the records of exactly this keyword, in the order of the file, which is read
            through for them.

        Raises
        ------
        InputError
            ``k`` is less than 1.
        FormatError
            What is found cannot be right: the file is damaged.
        """
        self._check_open()
        keyword = without_surrogates(options.text("keyword", keyword))
        k = None if k is None else options.whole("k", k, 1)
        if self.facts is None:
            found = (record for record in self._records() if record.keyword == keyword)
            return [record for record, _ in zip(found, range(k or len(self.data)), strict=False)]
        chunks = self._chunks_of(self.facts, keyword, k)
        if not chunks:
            from sqlrag.retrieval.words import words_of

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
        raise FormatError(f"{self.path}: the record at offset {facts.offsets[number]} is no list of chunks.")

    def _pair(self, number: int) -> tuple[bytes, bytes]:
        """Return keyword and content of a keyword record of a file of ours, as they lie there."""
        assert self.facts is not None  # noqa: S101 - asked for by the callers
        section = self.sections[KEYWORD]
        if not 0 <= number < self.facts.records:
            raise FormatError(f"{self.path} has {self.facts.records} keyword records, but none of the number {number}.")
        start, end = int(self.facts.offsets[number]), int(self.facts.offsets[number + 1])
        if not section.first <= start < end <= section.last + 1 + section.padding:
            raise FormatError(
                f"{self.path}: record {number} is said to go from {start} to {end}, out of the keyword section."
            )
        keyword, dash, content = self.data[start : min(end, section.last + 1)].rstrip(b"\0").partition(b"-")
        if not dash:
            raise FormatError(f"{self.path}: the record at offset {start} has no dash after its keyword.")
        return keyword, content

    def record(self, number: int) -> Record:
        """Return the keyword record of a number: in a file of sqlrag first the chunks, then the words."""
        self._check_open()
        number = options.whole("number", number, 0)
        if self.facts is None:
            for record in self._records():
                if record.number == number:
                    return record
            raise FormatError(f"{self.path} has no keyword record of the number {number}.")
        keyword, content = self._pair(number)
        try:
            return Record(number, unpacked_keyword(keyword), unpacked_text(content))
        except UnicodeDecodeError as error:
            raise FormatError(f"{self.path}: record {number} is no UTF-8: {error}. Get the file again.") from error

    def _spans(self) -> Iterator[tuple[int, int]]:
        """Yield where the keyword records of another writer's file lie."""
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
        """Return the records of the nearest vectors, found exactly; what was changed in the file is not noticed here.

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
            those of equal scores in the order of the file.

        Raises
        ------
        InputError
            The vector or ``k`` is of no use.
        FormatError
            The file holds no vectors, or some that are not finite.
        """
        k = options.whole("k", k, 1)
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
        # float32 rounds a sum otherwise from row to row: what might be among the best is scored again.
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
            raise FormatError(f"{self.path}: the content at offset {start} is no UTF-8: {error}.") from error

    def _others(self) -> tuple[NDArray[Any], list[Span]]:
        """Return the vectors of another writer's file and where their contents lie; it is read through for them."""
        if VECTOR not in self.sections:
            raise FormatError(f"{self.path} holds no vectors.")
        if self.dimensions is None:
            raise InputError(
                f"{self.path} does not say how long its vectors are. Pass it: RAGFile(path, dimensions=...)."
            )
        if self._other_vectors is None:
            self._other_vectors = walked(
                self.data, self.sections[VECTOR], self.dimensions, mark(self.byte_order), self.path
            )
        return self._other_vectors

    def iter_records(self, strategy: Literal["keyword", "vector"] = "keyword") -> Iterator[tuple[Any, str]]:
        """Yield what stands before and after the dash of each record of a section, in the order of the file.

        Keywords come as str, vectors as arrays ``[dimensions]`` of the file's numbers. In a file of sqlrag the keyword
        section holds the chunks (``node_id`` and text), then the words (with the numbers of their chunks), and the
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
