"""The map of a corpus as a table of points, shown in terminals and notebooks, and its colours."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from sqlrag.arguments import counted
from sqlrag.engines.duckdb.metadata import read_metadata
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.errors import NotFoundError
from sqlrag.ranking.results import frames
from sqlrag.ranking.snippets import clean, cut

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from sqlrag.search.store import Store

# Matplotlib's names of circle, square and triangle. With the colours there are 18 marks, then they repeat.
SHAPES = ("o", "s", "^")


class Theme(NamedTuple):
    """Colours of a picture: background, text, lines, points without a cluster, and clusters."""

    ground: str
    text: str
    faint: str
    none: str
    clusters: tuple[str, ...]


# The palette of Okabe and Ito (2008) without black and yellow, which have no contrast to one background; colours are
# lighter on the dark one, with a contrast of 3:1 or more.
THEMES = {
    "light": Theme(
        "#ffffff", "#1b1f24", "#c9ced6", "#9aa1ab", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
    ),
    "dark": Theme(
        "#14171c", "#eceff3", "#3c434d", "#757d88", ("#4A9FE0", "#F0803C", "#2CC79B", "#E39CC4", "#F3B73E", "#9FDCF5")
    ),
}


def mark(cluster: int, theme: Theme) -> tuple[str, str]:
    """Return colour and shape of a cluster; -1 is for points without one."""
    if cluster < 0:
        return theme.none, SHAPES[0]
    count = len(theme.clusters)
    return theme.clusters[cluster % count], SHAPES[cluster // count % len(SHAPES)]


COLUMNS = ("node_id", "doc_id", "x", "y", "cluster", "label")


class Analysis(Sequence[dict[str, Any]]):
    """Rows that an analysis has found: a sequence of dicts, and an Arrow table or a frame of all of them.

    ``notices`` has remarks for the reader, such as rows that were left out. The rows are an Arrow table underneath; a
    dict is made where one is read.
    """

    def __init__(self, table: pa.Table, notices: Sequence[str] = ()) -> None:
        self._table = table
        self.notices = list(notices)

    def arrow(self) -> pa.Table:
        """Return a ``pyarrow.Table``, one row per row."""
        return self._table

    def df(self) -> pd.DataFrame:
        """Return a pandas DataFrame, one row per row; MissingExtraError if pandas is not installed."""
        frames("pandas", f"{type(self).__name__}.df()")  # pyarrow's own error does not say how to install it
        return self._table.to_pandas()

    def pl(self) -> pl.DataFrame:
        """Return a polars DataFrame, one row per row; MissingExtraError if polars is not installed."""
        frame: pl.DataFrame = frames("polars", f"{type(self).__name__}.pl()").DataFrame(self._table)
        return frame

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, key: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> list[dict[str, Any]]: ...
    def __getitem__(self, key: int | slice) -> dict[str, Any] | list[dict[str, Any]]:
        if isinstance(key, slice):
            # A list would be of no type where it is empty.
            rows: list[dict[str, Any]] = self._table.take(np.arange(len(self))[key]).to_pylist()
            return rows
        row: dict[str, Any] = self._table.slice(range(len(self))[key], 1).to_pylist()[0]
        return row

    def __repr__(self) -> str:
        lines = [self._title(), *(f"Note: {notice}" for notice in self.notices)]
        rows = self[:_SHOWN]
        cells = [self._table.column_names, *([_cell(value) for value in row.values()] for row in rows)]
        widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
        lines += ["  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]
        return "\n".join([*lines, *[f"and {len(self) - _SHOWN:,} more"] * (len(self) > _SHOWN)])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{html.escape(name)}</th>" for name in self._table.column_names)
        rows = ("".join(f"<td>{html.escape(_cell(value))}</td>" for value in row.values()) for row in self[:_SHOWN])
        notes = "".join(f"<p><em>Note: {html.escape(notice)}</em></p>" for notice in self.notices)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        return f"<p><strong>{self._title()}</strong></p>{notes}<table><tr>{head}</tr>{body}</table>"

    def _title(self) -> str:
        return counted(len(self), "row")


_SHOWN = 10  # rows of a terminal


def _cell(value: Any) -> str:
    """Return a value for reading."""
    if value is None:
        return ""
    return cut(clean(f"{value:.4f}" if isinstance(value, float) else str(value)), _CELL)


_CELL = 60


class CorpusMap(Analysis):
    """The points of a map in reading order: a sequence of dicts with the keys of ``COLUMNS``.

    ``node_id`` is None if a point is a whole document; ``cluster`` is -1 and ``label`` empty if it is in none.
    ``level`` is what a point is, "chunk" or "document"; ``method`` and ``clusters`` are how places and clusters were
    computed. ``notices`` has remarks, such as chunks that were written later. The points are an Arrow table, about 100
    bytes each.
    """

    def __init__(self, table: pa.Table, facts: dict[str, Any], notices: Sequence[str] = ()) -> None:
        super().__init__(table, notices)
        self.level: str = facts["level"]
        self.method: str = facts["method"]
        self.clusters: int | str | None = facts["clusters"]

    def topics(self) -> list[dict[str, Any]]:
        """Return the clusters, the largest first: ``cluster``, ``label`` and how many ``points`` it has."""
        sizes = self._table.group_by(["cluster", "label"]).aggregate([([], "count_all")]).to_pylist()
        found = [
            {"cluster": row["cluster"], "label": row["label"], "points": row["count_all"]}
            for row in sizes
            if row["cluster"] >= 0
        ]
        return sorted(found, key=lambda row: row["cluster"])

    def __repr__(self) -> str:
        lines = [f"{row['points']:>7,}  {row['label']}" for row in self.topics()]
        return "\n".join([self._title(), *lines, *(f"Note: {notice}" for notice in self.notices)])

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr><td>{t['points']:,}</td><td>{html.escape(t['label'])}</td></tr>" for t in self.topics())
        notes = "".join(f"<p><em>Note: {html.escape(notice)}</em></p>" for notice in self.notices)
        table = f"<table><tr><th>Points</th><th>Topic</th></tr>{cells}</table>"
        return f"<p><strong>{self._title()}</strong></p>{notes}{table}"

    def _title(self) -> str:
        return f"Map of {counted(len(self), self.level)} by {self.method}, {counted(len(self.topics()), 'cluster')}"


def stored_map(store: Store) -> CorpusMap:
    """Return the stored map of an open file.

    Raises
    ------
    NotFoundError
        No map has been drawn.
    """
    con = store.cursor()
    found = read_metadata(con).get("corpus_map")
    if found is None:
        raise NotFoundError(
            f"{store.path} has no map yet. Draw it with corpus_map({str(store.path)!r}) or: sqlrag map {store.path}"
        )
    facts = json.loads(found)
    missing = con.execute("SELECT missing FROM map_status").fetchall()[0][0]
    notices = (
        [f"{counted(missing, facts['level'])} written since the map was drawn; redraw it to see them."]
        if missing
        else []
    )
    return CorpusMap(con.sql(read_sql("exploring/read_map")).to_arrow_table(), facts, notices)
