"""The keywords of a RAGFile: which words are in which chunks, the best chunk first, counted in a database beside it."""

from __future__ import annotations

import shutil
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from sqlrag.retrieval.words import MACROS
from sqlrag.store.schema import read_sql, run_script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_ROWS = 200_000


class Words:
    """Collects the words of chunks and the keywords of records; both may be more than fits into memory."""

    def __init__(self, con: duckdb.DuckDBPyConnection, heading_weight: float) -> None:
        self._con = con
        self._weight = heading_weight

    def add_chunks(self, first: int, chunks: pa.Table) -> None:
        """Take in chunks by CHUNK_SCHEMA, the first of which has the number ``first``."""
        numbers = pa.array(np.arange(first, first + len(chunks)))
        self._con.register("documents", chunks.select(["text", "heading_path"]).add_column(0, "rid", numbers))
        run_script(self._con, "index/choose_new", first=first)
        run_script(self._con, "index/stage_tokens")
        self._con.execute("INSERT INTO found SELECT rid, word, tf, heading_tf, len, heading_len FROM staged_tokens")
        self._con.unregister("documents")

    def add_keywords(self, first: int, keywords: Sequence[bytes]) -> None:
        """Take in the packed keywords of records, the first of which has the number ``first``."""
        numbers = np.arange(first, first + len(keywords))
        self._con.register("new_keywords", pa.table({"number": numbers, "keyword": pa.array(keywords, pa.binary())}))
        self._con.execute("INSERT INTO keywords FROM new_keywords")
        self._con.unregister("new_keywords")

    def postings(self) -> Iterator[tuple[list[str], list[str]]]:
        """Yield words in the order of their code points, and for each the numbers of its chunks, the best first."""
        self._con.execute(
            "CREATE TABLE words AS SELECT word, row_number() OVER (ORDER BY word) - 1 AS place "
            "FROM (SELECT DISTINCT word FROM found)"
        )
        words = [row[0] for row in self._con.execute("SELECT word FROM words ORDER BY place").fetchall()]
        con = self._con.cursor()  # kept: DuckDB 1.3.2 lets go of the rows with it
        rows = con.sql(read_sql("exchange/ranked_words"), params={"heading_weight": self._weight})
        read = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader  # the old name, on 1.3.2
        places, numbers = np.empty(0, np.int64), np.empty(0, np.int64)
        for batch in read(_ROWS):
            places = np.concatenate([places, batch["place"].to_numpy()])
            numbers = np.concatenate([numbers, batch["number"].to_numpy()])
            # The last word may go on in the next batch.
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
    """Open a place to collect words in: a database in ``folder``, which is made for it and removed."""
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
