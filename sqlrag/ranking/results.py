"""What a query returns: a list of plain dicts that also shows itself in a terminal, a notebook and as a table."""

from __future__ import annotations

import html
import json
import re
import sys
import unicodedata
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TextIO, overload
from uuid import UUID

from sqlrag.arguments import counted
from sqlrag.errors import MissingExtraError
from sqlrag.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from sqlrag.types import Candidate


def frames(library: Literal["pandas", "polars"], method: str) -> Any:
    """Return pandas or polars for a method that makes a frame, or raise MissingExtraError where it is not installed."""
    try:
        return import_module(library)
    except ImportError as error:
        raise MissingExtraError(method, "notebook") from error


# The keys of a result, in order, with the Arrow type of each column; "json" is a string that holds JSON.
COLUMN_TYPES = {
    "node_id": "string",
    "text": "string",
    "metadata": "json",
    "score": "float64",
    "score_type": "string",
    "source_doc": "json",
    "doc_id": "string",
    "chunk_index": "int32",
    "collection": "string",
    "heading_path": "list<string>",
    "page": "int32",
    "i_start": "int32",
    "i_end": "int32",
    "vector_score": "float64",
    "vector_rank": "int32",
    "lexical_score": "float64",
    "lexical_rank": "int32",
    "shown": "string",
    "tags": "list<string>",
    "checksum": "string",
}

RESULT_KEYS = tuple(COLUMN_TYPES)


def keys_of(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the keys of results: ``RESULT_KEYS``, and ``row_key`` where one of them is a row of a table."""
    return (*RESULT_KEYS, "row_key") if any("row_key" in row for row in rows) else RESULT_KEYS


_WIDTH = 100  # columns of a terminal

_TEXT_COLUMNS = 280  # of a chunk's text in the terminal: three lines

_TEXT_COLUMNS_HTML = 200

_ROWS_OF_REPR = 10

# Control characters, text direction overrides and lone surrogates: a document must not steer the terminal.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class Results(list[dict[str, Any]]):
    """The results of one query, best first: a list of plain dicts with the keys of ``RESULT_KEYS``.

    Slices keep the attributes. It equals any list of equal dicts.

    Parameters
    ----------
    rows
        One dict per result. ``metadata`` is a dict, ``heading_path`` a list of str (outermost first), ``page``
        counts from 1, ``i_start`` and ``i_end`` are characters of the source document, ranks count from 1. ``tags`` is
        a list of str, ``checksum`` the SHA-256 of the document's bytes in hex ("" where it has none). The chunk of a
        row of a table has ``row_key`` as well, the key in its own type.
    query_text
        What was asked.
    sql
        A statement that gives the same rows in the DuckDB shell, once ``sqlrag embed`` has stored the question's
        vector. It lacks what the macros have no option for: ``rrf_weights``, ``min_similarity``, ``per_document`` and a
        number of candidates that differs between the legs.
    notices
        What the caller should know of the answer, such as a leg that was missing.
    timings
        Seconds by stage.
    methods
        How each leg was searched, in words: ``{"vector": …, "lexical": …}``.
    candidates
        How many chunks each leg gave, before they were fused: ``{"vector": …, "lexical": …}``.

    The id of the search, as in the query log, is ``request_id``; that of a server's request, where one asked.
    With ``per_document``, ``further`` names by ``doc_id`` the chunks that were left out because better ones of their
    document are among the results, best first.
    A search of several files says in ``files`` which of them each result is from, by ``node_id``; empty for one file.

    Examples
    --------
    >>> results = Results([{"node_id": "a.md#0", "score": 0.5, "score_type": "rrf", "text": "Hello."}], query_text="hi")
    >>> results
    Results for 'hi': 1
     1  0.5000 rrf  a.md#0  Hello.
    >>> results[:1].query_text
    'hi'
    """

    def __init__(
        self,
        rows: Iterable[dict[str, Any]] = (),
        *,
        query_text: str = "",
        sql: str = "",
        notices: Iterable[str] = (),
        timings: Mapping[str, float] | None = None,
        methods: Mapping[str, str] | None = None,
        candidates: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(rows)
        self.query_text = query_text
        self.sql = sql
        self.notices = list(notices)
        self.timings = dict(timings or {})
        self.methods = dict(methods or {})
        self.candidates = dict(candidates or {})
        self.request_id = ""
        self.files: dict[str, Path] = {}
        self.further: dict[str, list[str]] = {}
        # What a query has found, whatever is sliced or changed later.
        self.found: tuple[Candidate, ...] = ()
        # Finds the words that were looked for in texts, as (start, end); it needs no file.
        self.marks: Callable[[Sequence[str]], list[list[tuple[int, int]]]] | None = None

    @overload
    def __getitem__(self, key: SupportsIndex) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: slice) -> Results: ...
    def __getitem__(self, key: SupportsIndex | slice) -> dict[str, Any] | Results:
        if isinstance(key, slice):
            rows = super().__getitem__(key)
            part = Results(
                rows,
                query_text=self.query_text,
                sql=self.sql,
                notices=self.notices,
                timings=self.timings,
                methods=self.methods,
                candidates=self.candidates,
            )
            part.files, part.further, part.marks, part.request_id = (
                self.files,
                self.further,
                self.marks,
                self.request_id,
            )
            return part
        return super().__getitem__(key)

    def copy(self) -> Results:
        """Return a shallow copy with the same attributes."""
        return self[:]

    def arrow(self) -> pa.Table:
        """Return a ``pyarrow.Table``, one row per result; the columns and their types are the same for any result.

        ``metadata`` and ``source_doc`` are strings that hold JSON, ``heading_path`` is ``list<string>``. Where a result
        is a row of a table, there is a last column ``row_key``, of the type of the keys; where these are of several
        types, they are text.
        """
        import pyarrow as pa

        types = {"json": pa.string(), "list<string>": pa.list_(pa.string())}
        schema = pa.schema([(name, types.get(kind) or getattr(pa, kind)()) for name, kind in COLUMN_TYPES.items()])
        as_json = [name for name, kind in COLUMN_TYPES.items() if kind == "json"]
        rows = [row | {name: _to_json(row.get(name)) for name in as_json} for row in self]
        table = pa.Table.from_pylist(rows, schema=schema)
        if keys_of(self) == RESULT_KEYS:
            return table
        keys = [row.get("row_key") for row in self]
        if len({type(key) for key in keys if key is not None}) > 1 or any(isinstance(key, UUID) for key in keys):
            keys = [None if key is None else str(key) for key in keys]
        return table.append_column("row_key", pa.array(keys))

    def df(self) -> pd.DataFrame:
        """Return a pandas DataFrame, one row per result; ``metadata`` stays a dict, ``heading_path`` a list.

        Whole numbers are of pandas' nullable type ``Int64``, so that a missing page or rank is ``<NA>``.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        pandas = frames("pandas", "Results.df()")
        frame: pd.DataFrame = pandas.DataFrame(
            [[row.get(name) for name in keys_of(self)] for row in self], columns=list(keys_of(self))
        )
        numbers = {"int32": "Int64", "float64": "float64"}
        return frame.astype({name: numbers[kind] for name, kind in COLUMN_TYPES.items() if kind in numbers})

    def pl(self) -> pl.DataFrame:
        """Return a polars DataFrame, one row per result, with the columns and types of :meth:`arrow`.

        Raises
        ------
        MissingExtraError
            If polars is not installed.
        """
        made: pl.DataFrame = frames("polars", "Results.pl()").DataFrame(self.arrow())
        return made

    def __repr__(self) -> str:
        lines = [f"Results for {_clean(self.query_text)!r}: {len(self) or 'none'}"]
        for rank, row in enumerate(self[:_ROWS_OF_REPR], start=1):
            parts = [f"{rank:>2}", _score(row), _place(row), _headings(row), _preview(row)]
            lines.append("  ".join(part for part in parts if part))
        if len(self) > _ROWS_OF_REPR:
            lines.append(f"    and {len(self) - _ROWS_OF_REPR} more")
        lines += [f"Note: {_clean(notice)}" for notice in self.notices]
        return "\n".join(_cut(line, _WIDTH) for line in lines)

    def _repr_html_(self) -> str:
        optional = [name for name, known in _COLUMNS_WHERE_KNOWN.items() if any(known(row) for row in self)]
        titles = ["#", "Score", *(name for name in optional if name != "Page"), "Document", "Section"]
        titles += [*(name for name in optional if name == "Page"), "Text"]
        texts = [_preview(row) for row in self]
        found = [[] for _ in texts] if self.marks is None or not texts else self.marks(texts)
        marked = [_marked(text, spans) for text, spans in zip(texts, found, strict=True)]
        head = "".join(f'<th style="text-align:left">{title}</th>' for title in titles)
        body = "".join(
            _html_row({"#": str(rank), "Text": text}, row, titles)
            for rank, (row, text) in enumerate(zip(self, marked, strict=True), start=1)
        )
        notes = "".join(f"<p><em>Note: {_escape(notice)}</em></p>" for notice in self.notices)
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if self else "<p>No results.</p>"
        # The classes keep MathJax from taking the dollar signs of a text for formulas.
        return (
            '<div class="tex2jax_ignore mathjax_ignore">'
            f"<p><strong>Query:</strong> {_escape(self.query_text)}</p>{notes}{table}</div>"
        )


def format_results(results: Sequence[Mapping[str, Any]], query_text: str) -> str:
    """Format results for reading: plain text without colours, at most 100 columns wide.

    Each result gives its rank, score, id, heading path, page, its rank and raw score in both legs, and the beginning
    of its text. A fused score orders the results of one query; how near a chunk is says the cosine, how well its
    words match the BM25 score.

    Parameters
    ----------
    results
        What a query returned, or any list of such dicts; keys that are missing are left out.
    query_text
        What was asked.

    Returns
    -------
    str
        Lines without a newline at the end.

    Examples
    --------
    >>> result = {"node_id": "a.md#0", "doc_id": "a.md", "score": 0.0328, "score_type": "rrf", "text": "Say hello.",
    ...           "heading_path": ["Guide", "Greeting"], "vector_rank": 1, "vector_score": 0.71}
    >>> print(format_results([result], "hello?"))
    Query: hello?
    1 result
    <BLANKLINE>
     1. a.md#0 (0.0328 rrf)
        Guide > Greeting
        vector #1 (cosine 0.7100), lexical -
    <BLANKLINE>
        Say hello.
    """
    lines = _wrap(f"Query: {_clean(query_text)}")
    lines.append(counted(len(results), "result") if results else "No results")
    for notice in getattr(results, "notices", ()):
        lines += _wrap(f"Note: {_clean(notice)}")
    for rank, row in enumerate(results, start=1):
        page = "" if row.get("page") is None else f"page {row['page']}"
        lines += ["", *_wrap(f"{_place(row)} ({_score(row)})", f"{rank:>2}. ", "    ")]
        lines += _wrap(", ".join(filter(None, [_headings(row), page])), "    ")
        lines += _wrap(_legs(row), "    ")
        lines += ["", *_wrap(_cut(_preview(row), _TEXT_COLUMNS), "    ")]
    return "\n".join(lines)


def print_results(
    results: Sequence[Mapping[str, Any]], query_text: str | None = None, *, file: TextIO | None = None
) -> None:
    """Print results for reading, as :func:`format_results` gives them.

    Parameters
    ----------
    results, query_text
        As in :func:`format_results`; a :class:`Results` knows its question.
    file
        Where to, by default standard output. A character that its encoding lacks is printed as ``?``.
    """
    stream = sys.stdout if file is None else file
    encoding = getattr(stream, "encoding", None) or "utf-8"
    asked = getattr(results, "query_text", "") if query_text is None else query_text
    text = format_results(results, asked).encode(encoding, "replace").decode(encoding)
    print(text, file=stream)


def _to_json(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _clean(text: object) -> str:
    """Make one line of a text: no control characters, single spaces."""
    return " ".join(_UNPRINTABLE.sub(" ", str(text)).split())


def _escape(text: object) -> str:
    return html.escape(_clean(text))


def _score(row: Mapping[str, Any]) -> str:
    return f"{row['score']:.4f} {_clean(row.get('score_type') or '')}".rstrip()


def _place(row: Mapping[str, Any]) -> str:
    """Return the id of the chunk, and the document unless the id begins with it."""
    node_id, doc_id = _clean(row.get("node_id") or ""), _clean(row.get("doc_id") or "")
    return node_id if node_id.startswith(doc_id) else f"{doc_id} [{node_id}]"


def _headings(row: Mapping[str, Any]) -> str:
    return " > ".join(_clean(title) for title in row.get("heading_path") or ())


def _legs(row: Mapping[str, Any]) -> str:
    """Return rank and raw score in both legs; "-" for a leg without the chunk, nothing where neither is known."""
    parts = []
    for leg, unit, decimals in (("vector", "cosine", 4), ("lexical", "BM25", 2)):
        unit = "ts_rank_cd" if leg == "lexical" and row.get("score_type") == "ts_rank_cd" else unit
        parts.append((leg, _leg(row, leg, decimals).replace("(", f"({unit} ")))
    return ", ".join(f"{leg} {known or '-'}" for leg, known in parts) if any(known for _, known in parts) else ""


def _preview(row: Mapping[str, Any]) -> str:
    """Return the text in one line, without the headings at its beginning that the heading path shows already."""
    titles = {_clean(title) for title in row.get("heading_path") or ()}
    lines = visible(str(row.get("shown") or row.get("text") or "")).splitlines()
    start = 0
    while start < len(lines) and (not lines[start].strip() or _clean(lines[start].strip("# ")) in titles):
        start += 1
    return _clean(" ".join(lines[start:])) or _clean(" ".join(lines))


def _leg(row: Mapping[str, Any], leg: str, decimals: int) -> str:
    """Return rank and raw score in one leg, "" where neither is known."""
    rank, score = row.get(f"{leg}_rank"), row.get(f"{leg}_score")
    known = [f"#{rank}"] if rank is not None else []
    return " ".join([*known, f"({score:.{decimals}f})"] if score is not None else known)


# Columns of the notebook's table that are left out where no result has them.
_COLUMNS_WHERE_KNOWN: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "Vector rank (cosine)": lambda row: _leg(row, "vector", 4),
    "Lexical rank (BM25)": lambda row: _leg(row, "lexical", 2),
    "Page": lambda row: "" if row.get("page") is None else str(row["page"]),
}


def _html_row(made: Mapping[str, str], row: Mapping[str, Any], titles: Sequence[str]) -> str:
    """Return a line of the table; the cells in ``made`` are HTML already."""
    cells = {"Score": _score(row), "Document": _place(row), "Section": _headings(row)}
    cells |= {title: known(row) for title, known in _COLUMNS_WHERE_KNOWN.items() if title in titles}
    html_cells = {**{title: _escape(cell) for title, cell in cells.items()}, **made}
    return "<tr>" + "".join(f'<td style="text-align:left">{html_cells[title]}</td>' for title in titles) + "</tr>"


def _marked(text: str, found: Sequence[tuple[int, int]]) -> str:
    """Return the part of a text where words of the question first stand, escaped, with these marked."""
    start = 0
    if found and found[0][0] > _TEXT_COLUMNS_HTML // 2:
        # Some words before the first one are shown as well.
        start = text.rfind(" ", 0, found[0][0] - _TEXT_COLUMNS_HTML // 4) + 1
    shown = ("…" if start else "") + text[start:]
    cut = _cut(shown, _TEXT_COLUMNS_HTML)
    kept, offset = len(cut) - (cut != shown), start - (1 if start else 0)
    parts, done = [], 0
    for begin, end in ((begin - offset, min(end - offset, kept)) for begin, end in found):
        if begin >= kept:
            break
        parts += [html.escape(cut[done:begin]), f"<mark>{html.escape(cut[begin:end])}</mark>"]
        done = end
    return "".join([*parts, html.escape(cut[done:])])


def _columns(text: str) -> int:
    """Count the columns of a terminal: 2 for a wide character (Han, Kana, Hangul), 0 for a combining one."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def _fitting(text: str, columns: int) -> int:
    """Return how many characters of the text fit into so many columns."""
    for index, char in enumerate(text):
        columns -= _columns(char)
        if columns < 0:
            return index
    return len(text)


def _cut(text: str, columns: int) -> str:
    """Cut a line to so many columns, at a space if there is one near the end, and say so by an ellipsis."""
    if _fitting(text, columns) == len(text):
        return text
    head = text[: _fitting(text, columns - 1)]
    space = head.rfind(" ", len(head) * 3 // 4)
    return (head[:space] if space > 0 else head).rstrip(" .,;:") + "…"


def _wrap(text: str, first: str = "", rest: str | None = None) -> list[str]:
    """Break a line at spaces, and inside a word only where the word alone is too wide (as Han, which has no spaces).

    ``first`` and ``rest`` are put before the first line and before the others.
    """
    indent = first if rest is None else rest
    lines, line = [], first
    for word in text.split():
        while _columns(line) + _columns(word) > _WIDTH:
            if line not in (first, indent):
                lines.append(line.rstrip())
            else:
                fits = _fitting(word, _WIDTH - len(line))
                lines.append(line + word[:fits])
                word = word[fits:]
            line = indent
        line += word + " "
    return lines if line in (first, indent) else [*lines, line.rstrip()]
