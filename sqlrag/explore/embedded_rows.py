"""Rows of tables, or chunks of a file, as vectors: what the analytics of text compute with."""

from __future__ import annotations

import os
import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa

from sqlrag import arguments, scratch
from sqlrag.arguments import counted, flag, meant_or_there, shown
from sqlrag.embedders.base import GIVEN, as_embedder, check_stored, load_stored, same_model
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.legs import passing_filters
from sqlrag.engines.duckdb.rows import vector_matrix
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import arrow_reader, identifier
from sqlrag.errors import InputError, ModelMismatchError
from sqlrag.ingest.row_source import READERS, Definition, Staging, kind_of
from sqlrag.ingest.run import model_of_new_file, window_of
from sqlrag.normalize import is_blank, json_pointer, normalize
from sqlrag.progress import Bar, bar_is_off
from sqlrag.ranking.filters import Filters
from sqlrag.ranking.vectors import unit_vectors
from sqlrag.search.open import is_open, open_file
from sqlrag.search.searcher import why_nothing_passes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from sqlrag.search.store import Store
    from sqlrag.types import AnyEmbedder, Embedder, ModelIdentity, Progress, TextKind, Vectors

_BATCH = 8192  # rows read at a time: 25 MB at 384 dimensions in DOUBLE

_VECTOR = re.compile(r"(FLOAT|DOUBLE|DECIMAL\(\d+,\d+\)|U?(TINY|SMALL|BIG)?INT(EGER)?)\[\d*\]")

# What Arrow, or Python, has no type of its own for.
_AS_TEXT = re.compile(r"UUID|JSON|BIT|TIME WITH TIME ZONE|ENUM\(.*\)|U?HUGEINT")

_TIMES = ("created_at", "modified_at")


class EmbeddedRows:
    """Rows with a key and a vector each, as :func:`sqlrag.embed_rows` returns them.

    They are in the order of their keys; chunks of a file in reading order.

    Attributes
    ----------
    name
        Where they are from, for messages.
    keys
        ``pyarrow.Array``: the column of keys, the number of the row from 0, or the ``node_id`` of the chunk.
    vectors
        ``[n, dimensions] float32``, unit norm.
    texts
        ``pyarrow.Array`` of strings; None where only vectors were given.
    columns
        ``pyarrow.Table``: the further columns that were asked for.
    model
        The name of what made the vectors; None where they were given.
    notices
        Remarks, such as how many rows were left out.
    identity
        What the file records about the model, where the rows are the chunks of one; else None.
    """

    def __init__(
        self,
        name: str,
        keys: pa.Array,
        vectors: Vectors,
        texts: pa.Array | None = None,
        columns: pa.Table | None = None,
        *,
        model: str | None = None,
        load: Callable[[], Embedder] | None = None,
        notices: Iterable[str] = (),
        identity: ModelIdentity | None = None,
    ) -> None:
        self.name = name
        self.keys = keys
        self.vectors = vectors
        self.texts = texts
        self.columns = pa.table({}) if columns is None else columns
        self.model = model
        self.notices = list(notices)
        self.identity = identity
        self._load = load

    def __len__(self) -> int:
        return len(self.keys)

    def __repr__(self) -> str:
        model = f"model {self.model!r}" if self.model else "given vectors"
        lines = [f"{counted(len(self), 'row')} of {self.name}, {self.vectors.shape[1]} dimensions, {model}"]
        return "\n".join([*lines, *(f"Note: {notice}" for notice in self.notices)])

    def embed(self, texts: Sequence[str], kind: TextKind = "document") -> Vectors:
        """Return the vectors of texts by the model of the rows, ``[len(texts), dimensions] float32``, unit norm.

        Raises
        ------
        InputError
            The vectors of the rows were given, so that their model is not known, or a text is blank.
        ModelUnavailableError, MissingExtraError, ProviderError
            They cannot be embedded.
        """
        from sqlrag.embedders import embed_texts

        if self._load is None:
            raise InputError(
                f"The vectors of {self.name} were given, so there is no model to embed texts with. Pass the model that "
                "made them: embed_rows(…, embedder=…); or give vectors in place of the texts."
            )
        return embed_texts(self._load(), list(texts), kind=kind)

    def check_same_model(self, other: EmbeddedRows) -> None:
        """Raise ModelMismatchError where the vectors of other rows are known to be of another model."""
        if not len(self) or not len(other):
            return
        names, widths = [self.name, other.name], [rows.vectors.shape[1] for rows in (self, other)]
        if self.model and other.model and not same_model(self.model, other.model):
            raise ModelMismatchError(
                f"The vectors of {names[0]} are of {self.model}, those of {names[1]} of {other.model}, so they cannot "
                "be compared. Embed both with one: embed_rows(…, embed_model_name=…)"
            )
        if widths[0] != widths[1]:
            raise ModelMismatchError(
                f"The vectors of {names[0]} have {widths[0]} dimensions, those of {names[1]} {widths[1]}, so they "
                "cannot be compared. Embed both with one model."
            )
        for stored, made in ((self, other), (other, self)):
            if stored.identity is not None and made.identity is None and made._load is not None:
                check_stored(made._load(), stored.identity)  # another model may have the same name


@public
def embed_rows(
    source: Any,
    *,
    key: str | None = None,
    text: str | Sequence[str] | None = None,
    vector: str | None = None,
    columns: Sequence[str] = (),
    database: Any = None,
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
    embedder: AnyEmbedder | None = None,
    embed_model_name: str | None = None,
    embedding_provider: str = "auto",
    verbose: bool = True,
    progress: Progress = "auto",
) -> EmbeddedRows:
    """Read rows of a table with their vectors, or the chunks of a file, to be joined, clustered or classified.

    Each different text is embedded once. No file is written; :func:`index_rows` keeps rows to be searched.

    Parameters
    ----------
    source
        As for :func:`index_rows`: a path, glob or list of Parquet, CSV or JSON lines; one SELECT; a DuckDB relation; an
        Arrow table, reader or object with ``__arrow_c_stream__``; a frame of pandas or polars. Or a file of sqlrag, as
        a path with another suffix or an open :class:`Store`: its rows are its chunks.
    key
        The column that identifies a row, of a type that :func:`index_rows` takes, unique and not NULL. None: rows are
        numbered from 0 in the order of the source.
    text
        The column to embed; a list of columns makes lines ``column: value``, a template such as ``"{subject}: {body}"``
        is filled in. Rows without text are left out, which a notice says. A text longer than the model's window is
        represented by its beginning, which a notice says too.
    vector
        The column of vectors that were computed before: lists of numbers, all of one length, in any scale. Rows where
        it is NULL are left out. With ``text`` as well, that is used for words only, not embedded.
    columns
        Further columns to keep, such as a date to count by. Of a file: ``created_at`` and ``modified_at`` of the
        document, and metadata fields, whose values are text.
    database
        For a query, as for :func:`index_rows`.
    collection, tags_any, tags_all, metadata
        Of a file: which chunks, as for :func:`hybrid_query`.
    embedder, embed_model_name, embedding_provider
        The model, as for :func:`prepare_embeddings`. A file has its own: then ``embedder`` is that model, loaded by
        you, and a name is a check only. Given vectors have none unless it is named here.
    verbose, progress
        As for :func:`update_embeddings`.

    Returns
    -------
    EmbeddedRows
        In the order of the keys. It takes 4 bytes a dimension and row, and the texts; while it is read, 60 MB more, and
        1 GB at most in DuckDB's own buffers. 100,000 given vectors of 384 dimensions are 154 MB.

    Raises
    ------
    InputError
        There is no such column, neither ``text`` nor ``vector`` is named, the key is missing or not unique, vectors are
        no lists of numbers, of different lengths, zero or not finite, the source cannot be read, or no chunk of a file
        passes the filters.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        There is no such file, or it cannot be read.
    ModelUnavailableError, MissingExtraError, ProviderError, ModelMismatchError
        The texts cannot be embedded, or the embedder is not the model of the file.

    Examples
    --------
    >>> rows = embed_rows("SELECT 7 AS id, [3.0, 4.0] AS v", key="id", vector="v")
    >>> rows.vectors.tolist()
    [[0.6000000238418579, 0.800000011920929]]
    """
    off = bar_is_off(progress, verbose=flag("verbose", verbose))
    names = tuple(arguments.text("A column", name) for name in arguments.items("columns", columns, "['created_at']"))
    filters = Filters(collection, tags_any, tags_all, metadata)
    model = None if embedder is None else as_embedder(embedder)
    if _is_store(source, database):
        _refuse(
            f"{shown(source)} is read as a file of sqlrag, which has its own keys, texts and vectors: leave out {{}}. "
            "Tables are files with a suffix such as .parquet or .csv, queries, relations and frames.",
            key=key, text=text, vector=vector, database=database,
        )  # fmt: skip
        with open_file(source) as store:
            known = store._searcher.identity.model_name
            if embed_model_name is not None and not same_model(embed_model_name, known):
                raise ModelMismatchError(f"The vectors of {store.path} are of {known!r}, not of {embed_model_name!r}.")
            return _of_store(store, names, filters, model)
    _refuse(
        "{} chooses chunks of a file of sqlrag. Choose rows of a table by a query: SELECT … WHERE …",
        collection=collection, tags_any=tags_any, tags_all=tags_all, metadata=metadata,
    )  # fmt: skip
    if text is None and vector is None:
        raise InputError("Name the column of the texts (text), or that of ready-made vectors (vector).")
    kind, named, path = kind_of(source, database)
    arguments.texts(key=key, vector=vector)
    if text is not None and not isinstance(text, str):
        text = tuple(arguments.items("text", text, "['subject', 'body']"))
        if not text:
            raise InputError("text names no column.")
    definition = Definition(kind, named, path, key or "", text or "")
    connection = database if isinstance(database, duckdb.DuckDBPyConnection) else None
    with closing(scratch.Folder()) as folder:
        staged = _Table(folder.path, definition, source, connection, vector, names)
        with closing(staged):
            read = staged.read()
    needed = vector is None
    if model is None and (needed or embed_model_name is not None):
        model = model_of_new_file(embed_model_name, embedding_provider, read.notices, stacklevel=4)
    if needed:
        return _embedded(read, model, off)
    if model is not None and len(read) and model.dimensions != read.vectors.shape[1]:
        raise InputError(
            f"The vectors of {read.name} have {read.vectors.shape[1]} dimensions, those of {model.model_name} "
            f"{model.dimensions}. Name the model that made them."
        )
    if model is not None:
        read.model, read._load = model.model_name, lambda: model
    return read


def rows_of(name: str, rows: object, columns: Sequence[str] = ()) -> EmbeddedRows:
    """Return the rows of an option: what :func:`embed_rows` returned, or the chunks of a file of sqlrag.

    The ``columns`` are read from the file; of rows that were read before they are those that were named then.
    """
    if isinstance(rows, EmbeddedRows):
        return rows
    if _is_store(rows, None):
        return embed_rows(rows, columns=columns)
    raise InputError(
        f"{name} must be what embed_rows returned, which reads the texts or vectors of a table, or a file of sqlrag, "
        f"not {shown(rows)}."
    )


def _is_store(source: object, database: object) -> bool:
    """Return whether a source is a file of sqlrag: an open store, or a path with a suffix that no table has."""
    if is_open(source):
        return True
    if database is not None or not isinstance(source, (str, os.PathLike)) or kind_of(source, None)[0] != "files":
        return False
    ends = tuple(end for known in READERS.values() for end in known)
    return not os.fspath(source).lower().endswith(ends)


def _refuse(message: str, **options: object) -> None:
    given = [name for name, value in options.items() if value is not None]
    if given:
        raise InputError(message.format(" and ".join(given)))


def _embedded(read: EmbeddedRows, model: Embedder | None, off: bool | None) -> EmbeddedRows:
    """Return rows with the vectors of their texts, each different text embedded once."""
    from sqlrag.embedders import embed_texts

    assert model is not None  # noqa: S101 - loaded by the caller
    assert read.texts is not None  # noqa: S101 - there are no vectors
    texts = [normalize(text) for text in read.texts.to_pylist()]
    places: dict[str, int] = {}
    of_row = [places.setdefault(text, len(places)) for text in texts]
    window = window_of(model)
    long = sum(len(text) > window and len(model.token_offsets(text)) > window for text in places)
    with Bar("embedding", "text", len(places), off=off) as bar:
        made = embed_texts(model, list(places), kind="document", progress=bar.made)
    if long:
        verb = "is" if long == 1 else "are"
        read.notices.append(
            f"{counted(long, 'text')} of {read.name} {verb} longer than {window} tokens, the window of "
            f"{model.model_name}: the vector is that of the beginning. index_rows cuts long texts into chunks."
        )
    read.vectors, read.model, read._load = made[of_row], model.model_name, lambda: model
    return read


class _Table(Staging):
    """A table that is read with its texts or vectors."""

    def __init__(
        self,
        folder: Path,
        definition: Definition,
        given: Any,
        connection: Any,
        vector: str | None,
        names: Iterable[str],
    ) -> None:
        self._vector, self._names = vector, tuple(names)
        super().__init__(folder, definition, given, connection)

    def _choose(self) -> None:
        wanted = self.definition
        self.key = self.named("key", wanted.key) if wanted.key else ""
        self.columns = {name: self.types[name] for name in dict.fromkeys(self.named("columns", n) for n in self._names)}
        if self.key:
            self.columns[self.key] = self.types[self.key]
            self._check_keys()
        elif "rowid" in map(str.casefold, self.types):
            raise InputError("A column named rowid hides the numbers of the rows. Name it as the key, or rename it.")
        self.notes += self.notes_on_dates(self.columns)
        self.text = self.text_sql(wanted.text) if wanted.text else "CAST(NULL AS VARCHAR)"
        if self._vector is not None:
            self._vector = self.named("vector", self._vector)
            self._check_vectors(self._vector)

    def _check_vectors(self, name: str) -> None:
        """Raise InputError unless a column has lists of numbers of one length."""
        kind, column = self.types[name], identifier(name)
        if not _VECTOR.fullmatch(kind) and kind != "VARCHAR[]" * self._is_null(column):
            raise InputError(
                f"The column {name} (vector) is of type {kind}. Vectors are lists of numbers: cast it in a query, such "  # noqa: S608 - a message
                f"as SELECT * REPLACE (CAST({column} AS FLOAT[]) AS {column}) FROM …; or name it as text."
            )
        widths = self.con.execute(
            f"SELECT len({column}) AS width, count(*) FROM source WHERE {column} IS NOT NULL "  # noqa: S608 - quoted
            "GROUP BY width ORDER BY count(*) DESC, width LIMIT 5"
        ).fetchall()
        if len(widths) > 1:
            named = ", ".join(f"{width} ({counted(count, 'row')})" for width, count in widths)
            raise InputError(
                f"The vectors in the column {name} of {self.definition} have different lengths: {named}. Keep those of "
                f"one model by a query: … WHERE len({column}) = {widths[0][0]}"
            )
        self._width = int(widths[0][0]) if widths else 0

    def _is_null(self, column: str) -> bool:
        return not self._one(f"SELECT count({column}) FROM source")  # noqa: S608 - quoted

    def read(self) -> EmbeddedRows:
        """Return the rows, without vectors where these have to be made of the texts."""
        key = self._plain(self.key) if self.key else "s.rowid"
        vector = f"CAST(s.{identifier(self._vector)} AS DOUBLE[])" if self._vector is not None else "NULL"
        kept = [f"{self._plain(self.named('columns', name))} AS c{place}" for place, name in enumerate(self._names)]
        order = f"s.{identifier(self.key)}" if self.key else "s.rowid"
        rows = self.con.sql(
            f"SELECT {', '.join([f'{key} AS key', f'{self.text} AS text', f'{vector} AS vector', *kept])} "  # noqa: S608
            f"FROM source AS s ORDER BY {order}"
        )
        total = self._one("SELECT count(*) FROM source")
        matrix = np.empty((total, self._width if self._vector is not None else 0), np.float32)
        parts, done, blank = [], 0, 0
        for batch in arrow_reader(rows, _BATCH):
            table = pa.Table.from_batches([batch])
            if self._vector is not None:
                is_there = table["vector"].is_valid()
            else:
                is_there = pa.array([t is not None and not is_blank(t) for t in table["text"].to_pylist()])
            kept_rows = table.filter(is_there)
            blank += len(table) - len(kept_rows)
            if self._vector is not None and len(kept_rows):
                matrix[done : done + len(kept_rows)] = self._units(kept_rows)
            done += len(kept_rows)
            parts.append(kept_rows.drop_columns(["vector"]))
        whole = pa.concat_tables(parts, promote_options="permissive").combine_chunks() if parts else None
        if whole is None:
            whole = rows.limit(0).to_arrow_table().drop_columns(["vector"])
        columns = pa.table({name: whole[f"c{place}"] for place, name in enumerate(self._names)})
        notices = list(self.notes)
        if blank:
            what = "vector" if self._vector is not None else "text"
            notices.append(f"{counted(blank, 'row')} of {self.definition} without a {what}: left out.")
        has_text = bool(self.definition.text)
        texts = _whole(whole["text"]) if has_text else None
        return EmbeddedRows(str(self.definition), _whole(whole["key"]), matrix[:done], texts, columns, notices=notices)

    def _units(self, rows: pa.Table) -> Vectors:
        """Return the vectors of some rows at length 1."""
        values = rows["vector"].combine_chunks().flatten()
        if values.null_count:
            lists = rows["vector"].to_pylist()
            key = rows["key"][next(i for i, one in enumerate(lists) if None in one)]
            raise InputError(
                f"The vector of the row {key} in {self.definition} has a NULL in it. Leave such rows out by a query."
            )
        if not self._width:
            raise InputError(f"The vectors in the column {self._vector} of {self.definition} are empty lists.")
        vectors = values.to_numpy(zero_copy_only=False).reshape(-1, self._width)
        try:
            return unit_vectors(vectors, self._width)
        except InputError:
            named = [f"key {key}" for key in rows["key"].to_pylist()]
            return unit_vectors(vectors, self._width, named)

    def _plain(self, name: str) -> str:
        column, kind = f"s.{identifier(name)}", self.types[name]
        return f"CAST({column} AS VARCHAR)" if _AS_TEXT.fullmatch(kind) else column


def _whole(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    found = column.combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found


def _of_store(store: Store, names: tuple[str, ...], filters: Filters, model: Embedder | None) -> EmbeddedRows:
    """Return the chunks of a file that pass the filters."""
    identity = store._searcher.identity
    if model is not None:
        check_stored(model, identity)
    known = identity.provider != GIVEN or model is not None
    return store._database.read(lambda: _chunks(store, names, filters, model if known else None, known))


def field_meant(store: Store, name: str) -> str:
    """Return the end of a sentence on a metadata field without values: which others are like it or there."""
    fields = [row[0] for row in store.select("facets/metadata_fields", most=1000)]
    there = "" if name in fields else meant_or_there(name, fields)
    return f"; {there}" if there else "."


def _chunks(
    store: Store, names: tuple[str, ...], filters: Filters, model: Embedder | None, known: bool
) -> EmbeddedRows:
    con, identity = store.cursor(), store._searcher.identity
    options: dict[str, Any] = dict.fromkeys(("passing", "collection", "tags_any", "tags_all"))
    options |= passing_filters(con, filters)
    more = []
    for place, name in enumerate(names):
        options |= {} if name in _TIMES else {f"field{place}": json_pointer(name)}
        value = f"s.{name}" if name in _TIMES else f"json_extract_string(d.metadata_, $field{place})"
        more.append(f", {value} AS c{place}")
    statement = read_sql("exploring/chunks_with_columns").replace("$columns", "".join(more))
    table = con.sql(statement, params=options).to_arrow_table().combine_chunks()
    if not len(table) and filters.parameters():
        raise InputError(why_nothing_passes(store._engine, filters))
    rids = table["rid"].to_numpy()
    vectors = np.empty((len(rids), store.dimensions), np.float32)
    order = np.argsort(rids)
    for start in range(0, len(order), _BATCH):
        places = order[start : start + _BATCH]
        span = {"first": int(rids[places[0]]), "stop": int(rids[places[-1]]) + 1}
        read = con.sql(read_sql("exploring/map_vectors"), params=span).to_arrow_table()
        wanted = np.searchsorted(read["rid"].to_numpy(), rids[places])
        vectors[places] = vector_matrix(read["embedding"], store.dimensions)[wanted]
    columns = {name: table[f"c{place}"] for place, name in enumerate(names)}
    for name, column in columns.items():
        if name not in _TIMES and column.null_count == len(column) and len(column):
            raise InputError(f"No chunk of {store.path} has the metadata field {name!r}{field_meant(store, name)}")
    path = store.path
    remedy = "with. Pass embedder to embed_rows."
    load = (lambda: model or load_stored(path, identity, remedy)) if known else None
    return EmbeddedRows(
        str(path), _whole(table["node_id"]), vectors, _whole(table["text"]), pa.table(columns),
        model=identity.model_name if known else None, load=load, identity=identity,
    )  # fmt: skip
