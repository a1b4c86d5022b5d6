"""Reads the arrays of a file, in one transaction, where they fit into a budget."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.engines.duckdb.lexical import stop_words
from sqlrag.engines.duckdb.rows import vector_matrix
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import arrow_reader
from sqlrag.engines.resident.index import Index, Postings, Rounded
from sqlrag.ranking.vectors import sign_words

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    import duckdb
    from numpy.typing import NDArray

# Rows of vectors that are read at a time.
_BATCH = 16_384

# Postings that are read at a time.
_POSTINGS = 1_000_000

_STRAY = "the word index holds chunks that are not there"

MB = 1_000_000

_NAMES = ("node_id", "doc_id", "chunk_index")


class UnfitError(Exception):
    """A file cannot be searched in memory; the message says why."""


def load(
    con: duckdb.DuckDBPyConnection, state: Hashable, dimensions: int, most_bytes: int, go_on: Callable[[], None]
) -> Index:
    """Return the arrays of a file, which is in ``state``.

    Parameters
    ----------
    con
        A cursor that nothing else uses, in no transaction.
    dimensions
        Of the vectors.
    most_bytes
        What the arrays may take. What results show of a chunk is left out where only the rest fits, and vectors are
        rounded where they do not fit as they are.
    go_on
        Called between the steps; it may raise.

    Raises
    ------
    UnfitError
        They do not fit, or the parts of the file do not belong together.
    """
    con.execute("BEGIN")
    try:
        return _load(con, state, dimensions, most_bytes, go_on)
    finally:
        con.execute("ROLLBACK")
        pa.default_memory_pool().release_unused()


def size(con: duckdb.DuckDBPyConnection, dimensions: int, *, rounded: bool = False) -> int:
    """Return how many bytes the arrays of a file will take, without what results show of the chunks."""
    chunks, of_names, postings, of_terms = _row(con, "sizes")
    # Of a chunk: its vector, its code and five numbers; of a posting: a row and two numbers of a byte, most often.
    of_vector = dimensions + 8 if rounded else 4 * dimensions
    return int(chunks * (of_vector + _words(dimensions) * 8 + 28) + of_names + 6 * postings + of_terms)


def size_of_contents(con: duckdb.DuckDBPyConnection) -> int:
    """Return how many bytes what results show of the chunks will take."""
    (of_contents,) = _row(con, "size_of_contents")
    return int(of_contents)


def _load(
    con: duckdb.DuckDBPyConnection, state: Hashable, dimensions: int, most_bytes: int, go_on: Callable[[], None]
) -> Index:
    needed = size(con, dimensions)
    rounded = needed > most_bytes
    if rounded:
        needed = size(con, dimensions, rounded=True)
    if needed > most_bytes:
        raise UnfitError(
            f"its arrays take {-(-needed // MB):,} MB, more than resident_mb, which is {most_bytes // MB:,}"
        )
    has_contents = needed + size_of_contents(con) <= most_bytes
    go_on()
    table = _table(con, "rows")
    if table["len"].null_count:
        raise UnfitError("the word index does not hold every chunk")
    rids = _numbers(table, "rid")
    go_on()
    postings = _postings(con, rids, go_on)
    contents = None
    if has_contents:
        go_on()
        shown = _table(con, "contents")
        own = _numbers(shown, "rid")
        if not np.array_equal(own, rids):
            shown = shown.take(np.argsort(own))
        contents = _batch(shown.drop_columns(["rid"]))
    go_on()
    room = Rounded.empty(len(rids), dimensions) if rounded else np.empty((len(rids), dimensions), dtype=np.float32)
    codes, longest = _read_vectors(con, rids, room, dimensions, go_on)
    terms = _table(con, "terms")
    go_on()
    num_docs, average_length, average_heading_length = _row(con, "stats")
    return Index(
        state=state,
        stops=frozenset(stop_words(con)),
        num_docs=num_docs,
        average_length=average_length,
        average_heading_length=average_heading_length,
        rids=rids,
        order=_numbers(table, "place"),
        hashes=_numbers(table, "hash"),
        lengths=_numbers(table, "len"),
        heading_lengths=_numbers(table, "heading_len"),
        names=_batch(table.select(_NAMES)),
        contents=contents,
        vectors=room,
        longest=longest,
        codes=codes,
        terms=terms["term"].combine_chunks(),
        termids=_numbers(terms, "termid"),
        dfs=_numbers(terms, "df"),
        postings=postings,
    )


def _read_vectors(
    con: duckdb.DuckDBPyConnection,
    rids: NDArray[np.int32],
    room: NDArray[np.float32] | Rounded,
    dimensions: int,
    go_on: Callable[[], None],
) -> tuple[NDArray[np.uint64], float]:
    """Put the vectors where there is room, in the order of their rows; return their signs, and the greatest length."""
    longest = 1.0
    codes = np.empty((_words(dimensions), len(rids)), dtype=np.uint64)
    for batch in arrow_reader(con.sql(read_sql("resident/vectors")), _BATCH):
        go_on()
        rows = rids.searchsorted(batch["rid"].to_numpy())
        values = vector_matrix(batch["embedding"], dimensions)
        first = int(rows[0]) if len(rows) else 0
        # A slice where the rows follow each other, which is copied faster.
        place: Any = (
            slice(first, first + len(rows)) if np.array_equal(rows, np.arange(first, first + len(rows))) else rows
        )
        if isinstance(room, Rounded):
            room.put(place, values)
        else:
            room[place] = values
        longest = max(longest, float(np.sqrt(np.nanmax(np.einsum("ij,ij->i", values, values), initial=0.0))))
        for word, (upper, lower) in enumerate(sign_words(values)):
            codes[2 * word, place], codes[2 * word + 1, place] = upper.view(np.uint64), lower
    return codes, longest


def _postings(con: duckdb.DuckDBPyConnection, rids: NDArray[np.int32], go_on: Callable[[], None]) -> Postings:
    """Return the postings in the order of terms and rows."""
    count, most_tf, most_heading_tf = _row(con, "postings_sizes")
    row_of = np.full(int(rids.max(initial=-1)) + 1, -1, dtype=np.int32)
    row_of[rids] = np.arange(len(rids), dtype=np.int32)
    termids, rows = np.empty((2, count), dtype=np.int32)
    tf, heading_tf = (np.empty(count, dtype=np.min_scalar_type(most)) for most in (most_tf, most_heading_tf))
    read = 0
    # A batch at a time: all of them, as DuckDB has them, take three times as much.
    for batch in arrow_reader(con.sql(read_sql("resident/postings")), _POSTINGS):
        go_on()
        place = slice(read, read + len(batch))
        of_chunks = batch["rid"].to_numpy()
        if of_chunks.min(initial=0) < 0 or of_chunks.max(initial=-1) >= len(row_of):
            raise UnfitError(_STRAY)
        termids[place], rows[place] = batch["termid"].to_numpy(), row_of[of_chunks]
        tf[place], heading_tf[place] = batch["tf"].to_numpy(), batch["heading_tf"].to_numpy()
        read += len(batch)
    if rows.min(initial=0) < 0:
        raise UnfitError(_STRAY)
    columns = [rows, tf, heading_tf]
    if not ((termids[1:] > termids[:-1]) | ((termids[1:] == termids[:-1]) & (rows[1:] > rows[:-1]))).all():
        # What was added later stands at the end, in order itself: a sort that is stable merges it in.
        ordered = np.argsort((termids.astype(np.int64) << 32) | rows, kind="stable")
        termids, columns = termids[ordered], [column[ordered] for column in columns]
    starts = np.flatnonzero(np.diff(termids, prepend=-1))
    return Postings(termids[starts], np.append(starts, count), *columns)


def _words(dimensions: int) -> int:
    """Return how many words of 64 bits the signs of a vector take."""
    return -(-dimensions // 128) * 2


def _row(con: duckdb.DuckDBPyConnection, name: str) -> tuple[Any, ...]:
    row: tuple[Any, ...] = con.execute(read_sql(f"resident/{name}")).fetchall()[0]
    return row


def _table(con: duckdb.DuckDBPyConnection, name: str) -> pa.Table:
    """Return the rows of a statement, each column in one piece."""
    table = con.sql(read_sql(f"resident/{name}")).to_arrow_table()
    types = [pa.large_string() if pa.types.is_string(column.type) else column.type for column in table.schema]
    fields = [column.with_type(kind) for column, kind in zip(table.schema, types, strict=True)]
    return table.cast(pa.schema(fields)).combine_chunks()


def _batch(table: pa.Table) -> pa.RecordBatch:
    """Return a table as one batch, of which pyarrow takes rows faster."""
    return pa.RecordBatch.from_arrays([column.combine_chunks() for column in table.columns], names=table.column_names)


def _numbers(table: pa.Table, name: str) -> NDArray[Any]:
    numbers: NDArray[Any] = table[name].to_numpy()
    return numbers
