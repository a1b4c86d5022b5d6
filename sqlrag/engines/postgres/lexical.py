"""The lexical index of a store in Postgres: that of a DuckDB file, in blocks of postings which are only ever inserted.

Words and terms are made by the statements of a DuckDB file, in a database in memory; the blocks of a question's terms
are read as they are and scored here. For 100,000 postings a server takes 1 ms to send the bytes of their blocks, 15 to
send them as arrays of integers, and 28 to unnest these and add up the scores in SQL.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from sqlrag.engines.duckdb.lexical import stem_words, word_macros
from sqlrag.engines.duckdb.schema import read_sql, run_script
from sqlrag.engines.duckdb.statements import register
from sqlrag.ranking.terms import Terms, ascii_parts, ascii_words, idf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.engines.postgres.connection import Connection
    from sqlrag.ranking.plan import BM25

    Ask = Callable[[str, Mapping[str, Any]], list[tuple[Any, ...]]]
    Numbers = NDArray[np.int64]

_COLUMNS = ("rid", "tf", "heading_tf", "len", "heading_len")

_NARROW = np.dtype([("rid", "<u4"), *((name, "<u2") for name in _COLUMNS[1:])])

_WIDE = np.dtype([(name, "<u8") for name in _COLUMNS])

_LENGTH = np.dtype([("rid", "<u8"), ("len", "<u8"), ("heading_len", "<u8"), ("hash", "<u8")])

# Of a word or term that the index of a table has.
_BEGINNING = 100

# Chunks and bytes of text whose words are found at a time.
_STAGED_CHUNKS = 4096
_STAGED_BYTES = 4_000_000

# The words of up to so many chunks are counted in Python.
_FEW = 256

# Chunks that are read back at a time.
_READ_CHUNKS = 20_000

# So many writes are there before rows of the index are joined, and of a word so many rows before it is worth it.
_JOINED_WRITES = 64
_JOINED_ROWS = 32

# A row of a word with as many chunks is left as it is, until this share of the chunks that were ever written is gone.
_FULL = 1000
_GONE = 0.2

_SOURCE = pa.schema(
    [
        ("text", pa.string()),
        ("shown", pa.string()),
        ("heading_path", pa.list_(pa.string())),
        ("chunk_index", pa.int32()),
        ("metadata_", pa.string()),
        ("tags", pa.list_(pa.string())),
        ("doc_id", pa.string()),
    ]
)


class Indexed(NamedTuple):
    """The words of chunks, each with its term and its records in ``postings``, from ``starts`` on; and their lengths.

    Until :meth:`of` gives them the ``rid`` of each chunk, both have its place among the given ones.
    """

    words: list[str]
    terms: list[str]
    starts: list[int]
    postings: NDArray[Any]
    lengths: NDArray[Any]

    def of(self, rids: Sequence[int]) -> Indexed:
        """Return the same of chunks with these ``rid``, in the order in which their texts were given."""
        number = np.array(rids, dtype=np.uint64)
        postings, lengths = self.postings.copy(), self.lengths.copy()
        postings["rid"], lengths["rid"] = number[postings["rid"]], number[lengths["rid"]]
        return self._replace(postings=postings, lengths=lengths)

    def parted(self, count: int) -> tuple[Indexed, Indexed]:
        """Return the words of the first ``count`` chunks, and those of the others, by their places among these."""
        return self._part(self.postings["rid"] < count, self.lengths[:count], 0), self._part(
            self.postings["rid"] >= count, self.lengths[count:], count
        )

    def _part(self, chosen: NDArray[np.bool_], lengths: NDArray[Any], first: int) -> Indexed:
        counts = np.add.reduceat(chosen, self.starts[:-1], dtype=np.int64) if self.words else np.empty(0, np.int64)
        held = np.flatnonzero(counts).tolist()
        postings, lengths = self.postings[chosen], lengths.copy()
        postings["rid"] -= first
        lengths["rid"] -= first
        starts = [0, *np.cumsum(counts[held]).tolist()]
        return Indexed([self.words[i] for i in held], [self.terms[i] for i in held], starts, postings, lengths)

    def rows(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield each term and word, and where its records begin and end."""
        for term, word, (start, end) in zip(self.terms, self.words, pairwise(self.starts), strict=True):
            yield term, word, start, end

    def write(self, con: Connection, sign: int = 1) -> None:
        """Insert them; with ``sign`` -1 as removed."""
        size, data = _packed(self.postings)
        rows = ((*names, sign * (end - start), data[size * start : size * end]) for *names, start, end in self.rows())
        _copy_postings(con, rows)
        none = self.lengths[:0]
        _write_lengths(con, (self.lengths, none) if sign > 0 else (none, self.lengths))


def _packed(postings: NDArray[Any]) -> tuple[int, bytes]:
    """Return the bytes of postings and how many each has."""
    narrow = all(int(postings[name].max(initial=0)) <= np.iinfo(_NARROW[name]).max for name in _COLUMNS)
    kind = _NARROW if narrow else _WIDE
    return kind.itemsize, postings.astype(kind).tobytes()


def _unpacked(n: int, block: bytes) -> NDArray[Any]:
    """Return the postings of a block."""
    kind = _NARROW if len(block) == abs(n) * _NARROW.itemsize else _WIDE
    return np.frombuffer(block, dtype=kind)


def _copy_postings(con: Connection, rows: Iterable[Sequence[Any]]) -> None:
    with con.cursor() as cursor, cursor.copy(read_sql("postgres/lexical/copy_postings")) as copy:
        copy.set_types(["text", "text", "int4", "bytea"])
        for row in rows:
            copy.write_row(row)


def chunks_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return what the words of chunks are read from, out of the columns of ``documents`` by their names there."""
    arrays = [columns[name] for name in _SOURCE.names]
    plain = [one.combine_chunks() if isinstance(one, pa.ChunkedArray) else one for one in arrays]
    return pa.table(
        [
            one.cast(kind.type) if isinstance(one, pa.Array) else pa.array(one, kind.type)
            for one, kind in zip(plain, _SOURCE, strict=True)
        ],
        schema=_SOURCE,
    )


def indexed(chunks: pa.Table, stemmer: str) -> Indexed:
    """Return the words of chunks, as :func:`chunks_table` gives them."""
    con = word_macros().cursor()
    try:
        as_documents(con, chunks)
        fields = con.execute(read_sql("postgres/lexical/fields")).fetchall() if len(chunks) <= _FEW else []
        found, measured = _of_few(con, fields) if fields else _of_many(con, chunks)
    finally:
        con.close()
    words = found["word"].combine_chunks().dictionary_encode()
    starts = np.flatnonzero(np.diff(words.indices.to_numpy(), prepend=-1)).tolist()
    distinct = words.dictionary.to_pylist()
    return Indexed(
        distinct,
        stem_words(distinct, stemmer),
        [*starts, len(found)],
        _records({name: found[name].to_numpy() for name in _COLUMNS}, _WIDE),
        _records(measured, _LENGTH),
    )


def _of_many(con: duckdb.DuckDBPyConnection, chunks: pa.Table) -> tuple[pa.Table, Mapping[str, Any]]:
    """Return the rows of ``counted_words`` in the order of words and places, and the columns of ``measured_chunks``."""
    run_script(con, "postgres/lexical/begin")
    for first, end in pairwise(_borders(chunks["text"])):
        con.execute(read_sql("postgres/lexical/stage_chunks"), {"first": first, "end": end})
        run_script(con, "index/stage_tokens")
        run_script(con, "postgres/lexical/count_words")
    return (
        con.sql(read_sql("postgres/lexical/words_in_order")).to_arrow_table(),
        con.execute(read_sql("postgres/lexical/lengths_in_order")).fetchnumpy(),
    )


def _of_few(
    con: duckdb.DuckDBPyConnection, fields: Sequence[tuple[int, str, str, int]]
) -> tuple[pa.Table, Mapping[str, Any]]:
    """Return the same without the 30 ms that DuckDB takes to plan it, for texts of ASCII without DuckDB."""
    others = list(dict.fromkeys(text for _, *texts, _ in fields for text in texts if not text.isascii()))
    statement = read_sql("postgres/lexical/words_of_texts")
    known = dict(zip(others, con.execute(statement, {"texts": others}).fetchall() if others else [], strict=True))
    rows = []
    lengths = []
    for rid, *texts, _ in fields:
        words = [known.get(text) or (ascii_words(text), ascii_parts(text)) for text in texts]
        lengths.append([len(plain) for plain, _ in words])
        text, heading = (Counter([*plain, *more]) for plain, more in words)
        rows += [(word, rid, text[word], heading[word], *lengths[-1]) for word in text.keys() | heading.keys()]
    names = ("word", *_COLUMNS)
    columns = list(zip(*sorted(rows), strict=True)) or [()] * len(names)
    found = pa.table([pa.chunked_array([pa.array(columns[0], pa.string())]), *map(_whole, columns[1:])], names=names)
    hashes = np.array([row[3] for row in fields], dtype=np.uint64)
    length, heading_length = zip(*lengths, strict=True)
    return found, {"rid": range(len(fields)), "len": length, "heading_len": heading_length, "hash": hashes}


def _whole(numbers: Sequence[int]) -> pa.Array:
    return pa.array(numbers, pa.int64())


def _records(columns: Mapping[str, Any], kind: np.dtype[Any]) -> NDArray[Any]:
    records = np.empty(len(columns["rid"]), dtype=kind)
    for name in kind.names or ():
        records[name] = columns[name]
    return records


def _borders(texts: pa.ChunkedArray) -> list[int]:
    """Return where each group of texts begins, and the end."""
    borders, size = [0], 0
    for place, length in enumerate(len(text) for text in texts.to_pylist()):
        if place - borders[-1] >= _STAGED_CHUNKS or (size and size + length > _STAGED_BYTES):
            borders.append(place)
            size = 0
        size += length
    return [*borders, len(texts)]


def take_chunks(con: Connection, doc_ids: Sequence[str]) -> list[tuple[Any, ...]]:
    """Delete the chunks of documents; return what their words were read from. The index has them still."""
    return con.execute(read_sql("postgres/lexical/remove_chunks"), {"doc_ids": list(doc_ids)}).fetchall()


def chunks_of(rows: Sequence[Sequence[Any]]) -> pa.Table:
    """Return what :func:`chunks_table` does for rows of ``texts.sql`` or ``remove_chunks.sql``."""
    _, *columns = list(zip(*rows, strict=True)) or [()] * (len(_SOURCE) + 1)
    return chunks_table(dict(zip(_SOURCE.names, columns, strict=True)))


def as_documents(con: duckdb.DuckDBPyConnection, chunks: pa.Table) -> None:
    """Let the statements of a connection read chunks as ``documents``, with their places as ``rid``."""
    register(con, "documents", chunks.append_column("rid", pa.array(range(len(chunks)), pa.int64())))


def words_of_new_stores() -> list[str]:
    """Return the stop words of a new store."""
    rows = word_macros().cursor().execute(read_sql("postgres/lexical/default_stop_words")).fetchall()
    return [word for (word,) in rows]


def set_stop_words(con: Connection, words: Sequence[str]) -> None:
    """Give a store its stop words."""
    con.execute(read_sql("postgres/lexical/set_stop_words"), {"words": list(words)})


def rebuild(con: Connection, stemmer: str) -> None:
    """Build the index anew from every chunk."""
    con.execute(read_sql("postgres/lexical/clear"))
    for rids, found in every_chunk(con, stemmer):
        found.of(rids).write(con)


def every_chunk(con: Connection, stemmer: str) -> Iterator[tuple[list[int], Indexed]]:
    """Yield what the words of all chunks give today, many at a time, and the ``rid`` of each chunk."""
    every = [rid for (rid,) in con.execute(read_sql("postgres/lexical/every_rid")).fetchall()]
    for place in range(0, len(every), _READ_CHUNKS):
        some = every[place : place + _READ_CHUNKS]
        rows = con.execute(read_sql("postgres/lexical/texts"), {"rids": some}).fetchall()
        yield some, indexed(chunks_of(rows), stemmer)


def join_rows(con: Connection) -> None:
    """Make few rows of the many that writers have left: what is removed goes with what it removes."""
    ((writes, gone, written),) = con.execute(read_sql("postgres/lexical/writes"), {"full": _FULL}).fetchall()
    if writes < _JOINED_WRITES:
        return
    if not con.execute(read_sql("postgres/lexical/join_alone")).fetchall()[0][0]:
        return  # another writer does it
    every = gone > _GONE * written
    values = {"rows": 1 if every else _JOINED_ROWS, "full": 2**31 - 1 if every else _FULL, "every": every}
    taken = con.execute(read_sql("postgres/lexical/take_lengths"), values).fetchall()
    _write_lengths(con, _joined([(n, _lengths(block)) for n, block in taken]))
    found: dict[tuple[str, str], list[tuple[int, NDArray[Any]]]] = defaultdict(list)
    for term, word, n, block in con.execute(read_sql("postgres/lexical/take_rows"), values).fetchall():
        found[term, word].append((n, _unpacked(n, block)))
    both = ((names, _joined(parts)) for names, parts in sorted(found.items()))
    signed = ((names, sign, records) for names, pair in both for sign, records in zip((1, -1), pair, strict=True))
    _copy_postings(con, ((*names, sign * len(one), _packed(one)[1]) for names, sign, one in signed if len(one)))


def _write_lengths(con: Connection, both: tuple[NDArray[Any], NDArray[Any]]) -> None:
    """Insert the records of chunks that are there, and of those that are removed."""
    for sign, records in zip((1, -1), both, strict=True):
        if len(records):
            row = {**_sums(sign, records), "block": records.tobytes()}
            con.execute(read_sql("postgres/lexical/insert_lengths"), row)


def _sums(sign: int, records: NDArray[Any]) -> dict[str, int]:
    """Return how many lengths are written or removed, and their sums."""
    return {"n": sign * len(records), **{name: sign * int(records[name].sum()) for name in ("len", "heading_len")}}


def _lengths(block: bytes) -> NDArray[Any]:
    return np.frombuffer(block, dtype=_LENGTH)


def _joined(parts: Sequence[tuple[int, NDArray[Any]]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the records of blocks that are left, and those that remove what is in another block; by ``rid`` both."""
    both = []
    for sign in (1, -1):
        kept = [records for n, records in parts if n * sign > 0]
        kind = max((records.dtype for _, records in parts), key=lambda one: one.itemsize, default=_LENGTH)
        records = np.concatenate([np.empty(0, kind), *(one.astype(kind) for one in kept)])
        both.append(records[np.argsort(records["rid"], kind="stable")])
    written, removed = both
    if not len(removed):
        return written, removed
    return (
        written[~np.isin(written["rid"], removed["rid"])],
        removed[~np.isin(removed["rid"], written["rid"])],
    )


@dataclass(frozen=True)
class Postings:
    """The chunks that hold a term, in no order: columns of a posting."""

    rids: Numbers
    tf: Numbers
    heading_tf: Numbers
    len: Numbers
    heading_len: Numbers

    @classmethod
    def of(cls, blocks: Sequence[tuple[str, int, bytes]]) -> Postings:
        """Return those of the blocks of a term's words."""
        parts = [(n, _unpacked(n, block)) for _, n, block in blocks]
        removed = [records["rid"] for n, records in parts if n < 0]
        kept = [records for n, records in parts if n > 0]
        columns = {
            name: np.concatenate([part[name] for part in kept]).astype(np.int64) if kept else np.empty(0, np.int64)
            for name in _COLUMNS
        }
        if removed:
            left = ~np.isin(columns["rid"], np.concatenate(removed))
            columns = {name: column[left] for name, column in columns.items()}
        if len({word for word, *_ in blocks}) > 1 and len(columns["rid"]):
            # A chunk may hold more than one of the words.
            order = np.argsort(columns["rid"], kind="stable")
            columns = {name: column[order] for name, column in columns.items()}
            starts = np.flatnonzero(np.diff(columns["rid"], prepend=-1))
            if len(starts) < len(order):
                for name in ("tf", "heading_tf"):
                    columns[name] = np.add.reduceat(columns[name], starts)
                for name in ("rid", "len", "heading_len"):
                    columns[name] = columns[name][starts]
        return cls(*(columns[name] for name in _COLUMNS))

    def contributions(self, df: int, boost: float, bm25: BM25, totals: Totals) -> tuple[Numbers, NDArray[np.float64]]:
        """Return what the term adds to the scores of chunks, in billionths, as ``bm25_contributions.sql`` does."""
        text, heading = bm25.text_weight, bm25.heading_weight
        weight = 1e9 * boost * (bm25.k1 + 1) * idf(df, totals.chunks)
        base = bm25.k1 * (1 - bm25.b)
        slope = bm25.k1 * bm25.b / max(text * totals.average + heading * totals.heading_average, 1)
        times = text * self.tf + heading * self.heading_tf
        length = text * self.len + heading * self.heading_len
        counts = times > 0  # not where its only field has no weight
        rids, times, length = (
            (self.rids, times, length) if counts.all() else (self.rids[counts], times[counts], length[counts])
        )
        return rids, np.floor(weight * times / (times + base + slope * length) + 0.5)


class Totals(NamedTuple):
    """How many chunks there are, and their average lengths, of text and headings."""

    chunks: int
    average: float
    heading_average: float


class PostgresDictionary:
    """The :class:`~sqlrag.ranking.terms.Dictionary` of a store in Postgres, for one question.

    It numbers terms in the order of their first look-up and keeps their postings.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self._numbers: dict[str, int] = {}
        self.terms: list[str] = []
        self.postings: list[Postings] = []
        ((chunks, length, heading_length, stops),) = ask("lexical/totals", {})
        self.totals = Totals(chunks, length / (chunks or 1), heading_length / (chunks or 1))
        self.stop_words = frozenset(stops)

    def look_up(self, terms: Sequence[str]) -> list[tuple[str, int, int]]:
        new = [term for term in dict.fromkeys(terms) if term not in self._numbers]
        if new:
            blocks: dict[str, list[tuple[str, int, bytes]]] = {term: [] for term in new}
            beginnings = sorted({term[:_BEGINNING] for term in new})
            for term, *block in self._ask("lexical/postings", {"beginnings": beginnings, "terms": new}):
                blocks[term].append(tuple(block))
            for term, found in blocks.items():
                self._numbers[term] = len(self.terms)
                self.terms.append(term)
                self.postings.append(Postings.of(found))
        numbered = [(term, self._numbers[term]) for term in sorted(set(terms))]
        counted = [(term, number, len(self.postings[number].rids)) for term, number in numbered]
        return [row for row in counted if row[2]]

    def beginning_with(self, prefix: str) -> list[tuple[str, int]]:
        rows = self._ask("lexical/beginning_with", {"prefix": prefix, "first": prefix[:_BEGINNING]})
        return [(term, number) for term, number, _ in self.look_up([term for (term,) in rows])]

    def chunks_with(self, termids: Sequence[int]) -> int:
        return len(np.unique(np.concatenate([self.postings[number].rids for number in termids])))

    def lengths(self) -> NDArray[Any]:
        """Return the ``rid``, lengths and hash of every chunk."""
        parts = [(n, _lengths(block)) for n, block, *_ in self._ask("lexical/lengths", {})]
        written, removed = (
            np.concatenate([np.empty(0, _LENGTH), *(one for n, one in parts if sign * n > 0)]) for sign in (1, -1)
        )
        return written[~np.isin(written["rid"], removed["rid"])] if len(removed) else written

    def nearest(self, word: str, most: int) -> list[tuple[int, int, str]]:
        values = {"first": word[:1], "last": word[-2:], "length": len(word), "most": most}
        rows = self._ask("lexical/words_near", values)
        con = word_macros().cursor()
        try:
            con.execute("BEGIN")
            names, counts = ([row[place] for row in rows] for place in (0, 1))
            table = pa.table({"word": pa.array(names, pa.string()), "df": pa.array(counts, pa.int32())})
            register(con, "near_words", table)
            con.execute(read_sql("postgres/lexical/add_near_words"))
            return con.execute(read_sql("index/nearest_words"), {"word": word, "most": most}).fetchall()
        finally:
            con.execute("ROLLBACK")
            con.close()


@dataclass(frozen=True)
class PostgresTerms(Terms):
    """Terms by their numbers in a dictionary, which has their postings."""

    dictionary: PostgresDictionary | None = field(default=None, compare=False)

    @classmethod
    def of(cls, terms: Terms, dictionary: PostgresDictionary) -> PostgresTerms:
        """Return terms that were looked up in the dictionary."""
        return cls(**{**vars(terms), "dictionary": dictionary})

    def of_chunk(self, rid: int, bm25: BM25) -> Iterator[tuple[int, str, int, int, float]]:
        """Yield ``(number, term, tf, heading_tf, contribution)`` of each term for one chunk."""
        for number, (rids, adds) in zip(self.termids, self.parts(bm25), strict=False):
            assert self.dictionary is not None  # noqa: S101 - else there are no parts
            postings = self.dictionary.postings[number]
            held = postings.rids == rid
            times = [int(column[held].sum()) for column in (postings.tf, postings.heading_tf)]
            yield number, self.dictionary.terms[number], times[0], times[1], float(adds[rids == rid].sum()) / 1e9

    def parts(self, bm25: BM25) -> Iterator[tuple[Numbers, NDArray[np.float64]]]:
        """Yield the chunks that each term adds something to, and what it adds, see :meth:`Postings.contributions`."""
        if self.dictionary is None:  # none were looked up
            return
        for place, (number, df) in enumerate(zip(self.termids, self.dfs, strict=True)):
            boost = self.boosts[place] if self.boosts else 1.0
            yield self.dictionary.postings[number].contributions(df, boost, bm25, self.dictionary.totals)


class Scored(NamedTuple):
    """Chunks by ``rid``, ascending, with their BM25."""

    rids: Numbers
    scores: NDArray[np.float64]

    def among(self, rids: Sequence[int] | Numbers) -> Scored:
        """Return those that are among others."""
        kept = np.isin(self.rids, np.asarray(rids, dtype=np.int64))
        return Scored(self.rids[kept], self.scores[kept])

    def best(self, count: int) -> Scored:
        """Return so many of the highest score, and all others of the same score as the last of them."""
        if len(self.rids) <= count:
            return self
        kept = self.scores >= np.partition(self.scores, -count)[-count]
        return Scored(self.rids[kept], self.scores[kept])


def scored(terms: PostgresTerms, bm25: BM25, *, at_least: int = 1, required: Sequence[int] = ()) -> Scored:
    """Return the BM25 of each chunk that holds ``at_least`` so many terms and one of each ``required`` clause."""
    parts = list(terms.parts(bm25))
    if not parts:
        return Scored(np.empty(0, np.int64), np.empty(0, np.float64))
    distinct, places = _numbered(np.concatenate([rids for rids, _ in parts]))
    # Contributions are whole billionths: their sums are exact, in whatever order they are added.
    sums = np.bincount(places, weights=np.concatenate([adds for _, adds in parts]), minlength=len(distinct))
    kept = np.bincount(places, minlength=len(distinct)) >= at_least
    if required:
        of_terms = np.split(places, np.cumsum([len(rids) for rids, _ in parts])[:-1])
        for clause in required:
            holds = np.zeros(len(distinct), dtype=bool)
            for number, found in zip(terms.clauses, of_terms, strict=True):
                if number == clause:
                    holds[found] = True
            kept &= holds
    return Scored(distinct[kept], sums[kept] / 1e9)


def _numbered(rids: Numbers) -> tuple[Numbers, Numbers]:
    """Return numbers that include every ``rid``, ascending, and the place of each ``rid`` among them."""
    first, last = (int(rids.min()), int(rids.max())) if len(rids) else (0, -1)
    if last - first < 50 * len(rids) + 1_000_000:
        return np.arange(first, last + 1), rids - first  # several times faster than sorting them
    distinct, places = np.unique(rids, return_inverse=True)
    return distinct, places


class _Sums:
    """For each ``rid`` a sum over its records of different signs: 0 where each is there as often with either sign."""

    def __init__(self) -> None:
        self._sums = np.zeros(1, dtype=np.uint64)

    def add(self, names: str, n: int, records: NDArray[Any]) -> None:
        """Add ``n`` records of a word and its term, negative ones where they are taken away."""
        last = int(records["rid"].max(initial=0))
        if last >= len(self._sums):
            self._sums = np.concatenate([self._sums, np.zeros(last + 1, dtype=np.uint64)])
        seed = int.from_bytes(blake2b(names.encode(), digest_size=8).digest(), "little")
        mixed = np.full(len(records), seed, dtype=np.uint64)
        for name in (records.dtype.names or ())[1:]:
            mixed = (mixed ^ records[name].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
        np.add.at(self._sums, records["rid"].astype(np.int64), mixed if n > 0 else np.uint64(0) - mixed)

    def wrong(self) -> list[int]:
        return [int(rid) for rid in np.flatnonzero(self._sums)]


def wrong_chunks(con: Connection, stemmer: str) -> list[int]:
    """Return the ``rid`` of each chunk whose words the index has not as they are today, and of others; ascending."""
    sums = _Sums()
    with con.cursor("blocks", binary=True) as cursor:
        for names, n, block in cursor.execute(read_sql("postgres/lexical/every_block")):
            sums.add(names, n, _unpacked(n, block))
    miscounted: set[int] = set()
    for n, block, *lengths in con.execute(read_sql("postgres/lexical/lengths")).fetchall():
        records = _lengths(block)
        sums.add("", n, records)
        # A search takes these sums for the average length of a chunk.
        if [n, *lengths] != list(_sums(1 if n > 0 else -1, records).values()):
            miscounted.update(records["rid"].tolist())
    for rids, found in every_chunk(con, stemmer):
        own = found.of(rids)
        for term, word, start, end in own.rows():
            sums.add(f"{term} {word}", start - end, own.postings[start:end])
        sums.add("", -len(rids), own.lengths)
    return sorted(miscounted.union(sums.wrong()))
