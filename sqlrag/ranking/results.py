"""What a query returns: a list of plain dicts that also shows itself in a terminal, a notebook and as a table."""

from __future__ import annotations

import datetime as dt
import html
import json
import math
import re
import sys
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TextIO, overload
from uuid import UUID

from sqlrag.arguments import counted
from sqlrag.errors import InputError, MissingExtraError
from sqlrag.ranking.snippets import CELLS, body_of, clean, columns_of, cut, fitting, snippet
from sqlrag.types import FILE_FIELDS, ROW
from sqlrag.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from sqlrag.ranking.snippets import WeighedWord
    from sqlrag.types import Candidate

    Weighed = Callable[[Sequence[str]], list[list[WeighedWord]]]


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
    "created_at": "string",
    "context": "string",
    "context_start": "int32",
    "context_end": "int32",
    "context_shown": "string",
}

RESULT_KEYS = tuple(COLUMN_TYPES)


def keys_of(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the keys of results: ``RESULT_KEYS``, and ``row_key`` where one is a row of a table or could be."""
    has_keys = getattr(rows, "of_tables", False) or any("row_key" in row for row in rows)
    return (*RESULT_KEYS, "row_key") if has_keys else RESULT_KEYS


MOST_EXACT = 2**53 - 1  # JavaScript and other JSON readers represent greater integers inexactly


def exact(value: Any) -> Any:
    """Return a value of a row as JSON has it without loss.

    Whole numbers up to ``MOST_EXACT`` and finite floats stay numbers. Greater ones, decimals, NaN and infinity ("NaN",
    "Infinity", "-Infinity") become text, and so do dates and times, in ISO 8601, and UUIDs.

    Examples
    --------
    >>> exact({"price": Decimal("24.50"), "day": dt.date(2024, 3, 1), "nr": 2**53, "x": float("-inf")})
    {'price': '24.50', 'day': '2024-03-01', 'nr': '9007199254740992', 'x': '-Infinity'}
    """
    if isinstance(value, Mapping):
        return {str(exact(key)): exact(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [exact(one) for one in value]
    if isinstance(value, int) and abs(value) > MOST_EXACT:
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, (dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID)):
        return format(value, "f") if isinstance(value, Decimal) else str(value)
    return value


def in_json(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result or a document with its key and the columns of its row as of :func:`exact`."""
    own = {name: exact(row[name]) for name in ("row_key", "row") if name in row}
    source = row.get("source_doc")
    return {**row, **own, **({"source_doc": in_json(source)} if isinstance(source, Mapping) else {})}


_WIDTH = 100  # columns of a terminal

# A row of a table that another line follows; both are in one paragraph in the terminal.
_END_OF_ROW = re.compile(rf"^(.*{CELLS}.*)\n", re.MULTILINE)

TEXT_COLUMNS = 280  # of a chunk's text in the terminal: three lines

_TEXT_COLUMNS_HTML = 200

_TEXT_COLUMNS_LINE = 60

_ROWS_OF_REPR = 10


class Results(list[dict[str, Any]]):
    """The results of one query, best first: a list of plain dicts with the keys of ``RESULT_KEYS``.

    Slices keep the attributes. It equals any list of equal dicts.

    Parameters
    ----------
    rows
        One dict per result. ``metadata`` is a dict, ``heading_path`` a list of str (outermost first), ``page``
        counts from 1, ``i_start`` and ``i_end`` are characters of the source document, ranks count from 1. ``tags`` is
        a list of str, ``checksum`` the SHA-256 of the document's bytes in hex ("" where it has none), ``created_at``
        when the document was stored, such as "2024-05-01T12:00:00Z". ``context`` is what was to be read around the
        chunk, ``context_start`` and ``context_end`` its characters of the source document; None where nothing was. The
        chunk of a row of a table has ``row_key`` as well, the key in its own type.
    query_text
        What was asked.
    sql
        A statement that gives the same rows in the DuckDB shell, once ``sqlrag embed`` has stored the question's
        vector. It lacks what the macros have no option for: ``rrf_weights``, ``min_similarity``, ``per_document``,
        ``context`` and a number of candidates that differs between the legs.
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
        # Finds them with what each counts as, and how much.
        self.weighed: Weighed | None = None
        # Nothing was found in a file that has rows of tables.
        self.of_tables = False

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
            for name in ("files", "further", "marks", "weighed", "request_id", "of_tables"):
                setattr(part, name, getattr(self, name))
            return part
        return super().__getitem__(key)

    def copy(self) -> Results:
        """Return a shallow copy with the same attributes."""
        return self[:]

    def arrow(self) -> pa.Table:
        """Return a ``pyarrow.Table``, one row per result; the columns and their types are the same for any result.

        ``metadata`` and ``source_doc`` are strings that hold JSON, ``heading_path`` is ``list<string>``. Where a result
        is a row of a table, there is a last column ``row_key``, of the type of the keys; where these are of several
        types, they are text. An empty result of a file with tables has that column, too, so that it can be joined.
        """
        import pyarrow as pa

        types = {"json": pa.string(), "list<string>": pa.list_(pa.string())}
        schema = pa.schema([(name, types.get(kind) or getattr(pa, kind)()) for name, kind in COLUMN_TYPES.items()])
        as_json = [name for name, kind in COLUMN_TYPES.items() if kind == "json"]
        rows = [row | {name: _to_json(in_json(row).get(name)) for name in as_json} for row in self]
        table = pa.Table.from_pylist(rows, schema=schema)
        if keys_of(self) == RESULT_KEYS:
            return table
        keys = self._row_keys()
        if any(isinstance(key, UUID) for key in keys):
            keys = [None if key is None else str(key) for key in keys]
        return table.append_column("row_key", pa.array(keys))

    def _row_keys(self) -> list[Any]:
        """Return the keys of rows of tables, as text where they are of several types."""
        keys = [row.get("row_key") for row in self]
        if len({type(key) for key in keys if key is not None}) > 1:
            return [None if key is None else str(key) for key in keys]
        return keys

    def df(self) -> pd.DataFrame:
        """Return a pandas DataFrame, one row per result; ``metadata`` stays a dict, ``heading_path`` a list.

        Whole numbers are of pandas' nullable type ``Int64``, so that a missing page, rank or ``row_key`` is ``<NA>``.
        Keys of several types, such as those of two tables, are text, as in :meth:`arrow`; ask one table
        (``collection``) to have them in their own type.

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
        frame = frame.astype({name: numbers[kind] for name, kind in COLUMN_TYPES.items() if kind in numbers})
        keys = self._row_keys()
        if "row_key" in frame:
            frame["row_key"] = keys
        there = [key for key in keys if key is not None]
        if there and all(isinstance(key, int) for key in there):
            # Beside a result without one, pandas would make floats of them, which are exact to 2**53.
            exact = pandas.Series(keys, index=frame.index, dtype=object)
            frame["row_key"] = exact.astype("Int64") if min(there) >= -(2**63) and max(there) < 2**63 else exact
        return frame

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
        lines = [f"Results for {clean(self.query_text)!r}: {len(self) or 'none'}"]
        first = self[:_ROWS_OF_REPR]
        texts = snippets_of(first, _TEXT_COLUMNS_LINE, self.weighed)
        for rank, (row, text) in enumerate(zip(first, texts, strict=True), start=1):
            parts = [f"{rank:>2}", _score(row), _place(row), _title(row), clean(text)]
            lines.append("  ".join(part for part in parts if part))
        if len(self) > _ROWS_OF_REPR:
            lines.append(f"    and {len(self) - _ROWS_OF_REPR} more")
        lines = [cut(line, _WIDTH) for line in lines]
        for notice in self.notices:  # whole, since a remedy comes last
            lines += wrapped(f"Note: {clean(notice)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        optional = [name for name, known in _COLUMNS_WHERE_KNOWN.items() if any(known(row) for row in self)]
        after = ("Page", "Row", "Columns")
        titles = ["#", "Score", *(name for name in optional if name not in after), "Document", "Section"]
        titles += [*(name for name in optional if name in after), "Text"]
        texts = [clean(text) for text in snippets_of(self, _TEXT_COLUMNS_HTML, self.weighed)]
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


def format_results(results: Sequence[Mapping[str, Any]], query_text: str, *, width: int = _WIDTH) -> str:
    """Format results for reading: plain text without colours, at most ``width`` columns wide, broken between words.

    Each result gives its rank, score, id, document and headings, page, its rank and raw score in both legs, the columns
    of a row of a table that its text lacks, and the part of its text that holds most of what was asked, by the weight
    of the words; its beginning where only the text is known. What was to be read around it is shown whole, with a bar
    before the lines of the chunk. A fused score orders the results of one query; how near a chunk is says the cosine,
    how well its words match the BM25 score.

    Parameters
    ----------
    results
        What a query returned, or any list of such dicts; keys that are missing are left out.
    query_text
        What was asked.
    width
        The columns of a line, 40 or more.

    Returns
    -------
    str
        Lines without a newline at the end.

    Raises
    ------
    InputError
        The question comes first, and the results second.

    Examples
    --------
    >>> result = {"node_id": "a.md#0", "doc_id": "a.md", "score": 0.0328, "score_type": "rrf", "text": "Say hello.",
    ...           "heading_path": ["Guide", "Greeting"], "vector_rank": 1, "vector_score": 0.71}
    >>> print(format_results([result], "hello?"))
    Query: hello?
    1 result
    <BLANKLINE>
     1. a.md#0 (0.0328 rrf)
        Guide › Greeting
        vector #1 (cosine 0.7100), lexical -
    <BLANKLINE>
        Say hello.
    """
    if isinstance(results, str):
        raise InputError("The results come first, then the question: print_results(results, 'a question').")
    wrap = partial(wrapped, width=width)
    lines = wrap(f"Query: {clean(query_text)}")
    lines.append(counted(len(results), "result") if results else "No results")
    for notice in getattr(results, "notices", ()):
        lines += wrap(f"Note: {clean(notice)}")
    texts = snippets_of(results, TEXT_COLUMNS, getattr(results, "weighed", None))
    for rank, (row, text) in enumerate(zip(results, texts, strict=True), start=1):
        page = "" if row.get("page") is None else f"page {row['page']}"
        lines += ["", *wrap(f"{_place(row)} ({_score(row)})", f"{rank:>2}. ", "    ")]
        lines += wrap(", ".join(filter(None, [_title(row), page, _key(row)])), "    ")
        lines += wrap(_legs(row), "    ")
        lines += wrap(cut(_columns(row), TEXT_COLUMNS), "    ")
        lines += ["", *(_around(row, wrap) or wrap(_END_OF_ROW.sub(r"\1;\n", text), "    "))]
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

    Raises
    ------
    InputError
        As in :func:`format_results`.
    """
    stream = sys.stdout if file is None else file
    encoding = getattr(stream, "encoding", None) or "utf-8"
    asked = getattr(results, "query_text", "") if query_text is None else query_text
    text = format_results(results, asked).encode(encoding, "replace").decode(encoding)
    print(text, file=stream)


def _to_json(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _escape(text: object) -> str:
    return html.escape(clean(text))


def _score(row: Mapping[str, Any]) -> str:
    return f"{row['score']:.4f} {clean(row.get('score_type') or '')}".rstrip()


def _place(row: Mapping[str, Any]) -> str:
    """Return the id of the chunk, and the document unless the id begins with it."""
    node_id, doc_id = clean(row.get("node_id") or ""), clean(row.get("doc_id") or "")
    return node_id if node_id.startswith(doc_id) else f"{doc_id} [{node_id}]"


def _title(row: Mapping[str, Any]) -> str:
    """Return the title of the document, and the headings: "document › heading"."""
    titles = [clean(title) for title in row.get("heading_path") or ()]
    metadata = row.get("metadata")
    own = metadata.get("title") if isinstance(metadata, dict) else None
    if isinstance(own, str) and clean(own) and clean(own) not in titles[:1]:
        titles = [clean(own), *titles]
    return " › ".join(titles)


def _key(row: Mapping[str, Any]) -> str:
    return f"row_key {clean(str(exact(row['row_key'])))}" if "row_key" in row else ""


# What the metadata of a row have beside its columns.
_OF_EVERY_ROW = (*FILE_FIELDS, "truncated")

_VALUE_COLUMNS = 40


def _columns(row: Mapping[str, Any]) -> str:
    """Return the columns of a row of a table that filters know, "price: 12.5, shop: north"; "" of anything else."""
    metadata = row.get("metadata")
    if not isinstance(metadata, Mapping) or not str(metadata.get("mime")).startswith(ROW):
        return ""
    told = {clean(title) for title in row.get("heading_path") or ()}
    values = {name: _written(value) for name, value in metadata.items() if name not in _OF_EVERY_ROW}
    parts = [f"{clean(name)}: {value}" for name, value in values.items() if value not in told]
    return ", ".join(parts)


def _written(value: object) -> str:
    """Return a value of a column in one line, a text as it is and anything else as JSON has it."""
    text = value if isinstance(value, str) else json.dumps(exact(value), ensure_ascii=False, default=str)
    return cut(clean(text), _VALUE_COLUMNS)


def snippets_of(rows: Sequence[Mapping[str, Any]], columns: int, weighed: Weighed | None) -> list[str]:
    """Return the part of each text to show, so many columns at most; its beginning where the question is unknown."""
    texts = [body_of(row) for row in rows]
    words = weighed(texts) if weighed and texts else [[] for _ in texts]
    return [snippet(text, found, columns) for text, found in zip(texts, words, strict=True)]


def _around(row: Mapping[str, Any], wrap: Callable[..., list[str]]) -> list[str]:
    """Return the lines of what was to be read around a chunk, those of the chunk with a bar; none for nothing."""
    seen, start, end = row.get("context_shown") or row.get("context"), row.get("context_start"), row.get("i_start")
    if not isinstance(seen, str) or start is None or end is None:
        return []
    own, after = end - start, end - start + len(row["text"])
    lines = []
    for bar, part in (("    ", seen[:own]), ("  | ", seen[own:after]), ("    ", seen[after:])):
        for line in visible(part).splitlines():
            lines += wrap(clean(line), bar)
    return lines


def _legs(row: Mapping[str, Any]) -> str:
    """Return rank and raw score in both legs; "-" for a leg without the chunk, nothing where neither is known."""
    parts = []
    for leg, unit, decimals in (("vector", "cosine", 4), ("lexical", "BM25", 2)):
        parts.append((leg, _leg(row, leg, decimals).replace("(", f"({unit} ")))
    return ", ".join(f"{leg} {known or '-'}" for leg, known in parts) if any(known for _, known in parts) else ""


def _leg(row: Mapping[str, Any], leg: str, decimals: int) -> str:
    """Return rank and raw score in one leg, "" where neither is known, or where the words are not found."""
    rank, score = row.get(f"{leg}_rank"), row.get(f"{leg}_score")
    if rank is None and leg == "lexical" and not score:  # 0 is the BM25 of a chunk without the words
        return ""
    known = [f"#{rank}"] if rank is not None else []
    return " ".join([*known, f"({score:.{decimals}f})"] if score is not None else known)


# Columns of the notebook's table that are left out where no result has them.
_COLUMNS_WHERE_KNOWN: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "Vector rank (cosine)": lambda row: _leg(row, "vector", 4),
    "Lexical rank (BM25)": lambda row: _leg(row, "lexical", 2),
    "Page": lambda row: "" if row.get("page") is None else str(row["page"]),
    "Row": lambda row: str(exact(row["row_key"])) if "row_key" in row else "",
    "Columns": _columns,
}


def _html_row(made: Mapping[str, str], row: Mapping[str, Any], titles: Sequence[str]) -> str:
    """Return a line of the table; the cells in ``made`` are HTML already."""
    cells = {"Score": _score(row), "Document": _place(row), "Section": _title(row)}
    cells |= {title: known(row) for title, known in _COLUMNS_WHERE_KNOWN.items() if title in titles}
    html_cells = {**{title: _escape(cell) for title, cell in cells.items()}, **made}
    return "<tr>" + "".join(f'<td style="text-align:left">{html_cells[title]}</td>' for title in titles) + "</tr>"


def _marked(text: str, found: Sequence[tuple[int, int]]) -> str:
    """Return a text escaped, with these parts of it marked."""
    parts, done = [], 0
    for begin, end in found:
        parts += [html.escape(text[done:begin]), f"<mark>{html.escape(text[begin:end])}</mark>"]
        done = end
    return "".join([*parts, html.escape(text[done:])])


def wrapped(text: str, first: str = "", rest: str | None = None, *, width: int = _WIDTH) -> list[str]:
    """Break a line at spaces, and inside a word only where the word alone is too wide (as Han, which has no spaces).

    ``first`` and ``rest`` are put before the first line and before the others.
    """
    indent = first if rest is None else rest
    lines, line = [], first
    for word in text.split():
        while columns_of(line) + columns_of(word) > width:
            if line not in (first, indent):
                lines.append(line.rstrip())
            else:
                fits = fitting(word, width - len(line))
                lines.append(line + word[:fits])
                word = word[fits:]
            line = indent
        line += word + " "
    return lines if line in (first, indent) else [*lines, line.rstrip()]
