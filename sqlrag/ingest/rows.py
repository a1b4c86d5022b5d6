"""Makes documents of the rows of tables and queries, and keeps them up to date: only what changed is embedded."""

from __future__ import annotations

import glob
import html
import os
import re
import warnings
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlrag import arguments, scratch
from sqlrag.arguments import counted
from sqlrag.embedders.base import as_embedder
from sqlrag.engines.duckdb import documents as stored_documents
from sqlrag.engines.duckdb import lexical, metadata, row_tables
from sqlrag.engines.duckdb.database import Database
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import check_output
from sqlrag.engines.duckdb.metadata import chunk_policy_of, policy_text, refresh_counts, required_metadata
from sqlrag.engines.duckdb.model_fit import model_fit
from sqlrag.engines.duckdb.rewrite import new_file
from sqlrag.engines.duckdb.rows import vector_matrix
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import arrow_reader, identifier
from sqlrag.errors import InputError, NotFoundError, SqlragError
from sqlrag.ingest.build import begin, ending, memory_for
from sqlrag.ingest.chunk import chunk_metadata
from sqlrag.ingest.kept import Kept, noting
from sqlrag.ingest.row_faults import note_on_relative_paths
from sqlrag.ingest.row_source import ROWS_AT_ONCE, Definition, Staging, definition_of
from sqlrag.ingest.run import Failure, Report, Run, check_suffix, checked_collection, fit_to_window, model_of_new_file
from sqlrag.ingest.update import Plan, Update, change_settings, changed_policy, wanted_policy
from sqlrag.normalize import clean_metadata, clean_name, is_blank, normalize
from sqlrag.progress import Bar, bar_is_off
from sqlrag.ranking.plan import DEFAULT_HEADING_WEIGHT
from sqlrag.types import ROW, ROW_MARKDOWN, Chunk, ChunkPolicy, Document

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlrag.engines.duckdb.row_tables import RowSource
    from sqlrag.types import AnyEmbedder, ChunkUnit, Embedder, Progress, Vectors


@dataclass
class RowsReport(Report):
    """What :func:`index_rows` and :func:`update_rows` did.

    ``files`` is how many rows were read. A row is one of ``added``, ``changed`` (its text), ``columns_changed`` (others
    alone, without embedding), ``unchanged`` and ``failures``. ``missing`` are rows of the file that the source has no
    more, and that were kept; ``removed`` those that were deleted. ``documents``, ``chunks``, ``embedded`` and
    ``reused`` count what was written, as in every report; ``same`` chunks have the text of another one of the run.
    """

    collection: str = ""
    added: int = 0
    changed: int = 0
    columns_changed: int = 0
    unchanged: int = 0
    missing: int = 0
    removed: int = 0
    same: int = 0

    def __str__(self) -> str:
        """Return the report as lines for a terminal."""
        counts = ("added", "changed", "columns_changed", "unchanged", "removed", "missing")
        named = ", ".join(f"{getattr(self, name):,} {name.replace('_', ' ')}" for name in counts)
        texts = f"{counted(self.embedded, 'text')} embedded, {self.same:,} the same as another, {self.reused:,} known"
        read = f"{counted(self.files, 'row')} read"
        lines = [
            f"{self.collection}: {read}: {named}, {self.failed:,} failed, {self.empty:,} empty",
            f"{counted(self.chunks, 'chunk')} written, {texts} ({self._stages()})",
        ]
        missing = [f"  {counted(self.missing, 'row')} of the file not in the source; prune removes them"] * bool(
            self.missing
        )
        return "\n".join([*lines, *missing, *self._details()[1:]])

    def counts(self) -> dict[str, int]:
        """Return the counts by name."""
        return {one.name: getattr(self, one.name) for one in fields(self) if isinstance(getattr(self, one.name), int)}


class Reports(list[RowsReport]):
    """Reports that are shown as their texts."""

    def _repr_html_(self) -> str:  # IPython has a text of its own for every list
        return f"<pre>{html.escape(str(self))}</pre>"

    def __str__(self) -> str:
        """Return the reports as lines for a terminal."""
        return "\n".join(map(str, self))


@public
def index_rows(
    source: Any,
    db_path: str | os.PathLike[str],
    *,
    key: str,
    text: str | Sequence[str],
    title: str | None = None,
    metadata: Sequence[str] | None = None,
    tags: str | None = None,
    markdown: bool = False,
    collection: str | None = None,
    database: Any = None,
    leave_out: Sequence[str] = (),
    chunk_size: int | None = None,
    chunk_overlap: int | None = None,
    chunk_unit: ChunkUnit | None = None,
    stemmer: str | None = None,
    force: bool = False,
    embedder: AnyEmbedder | None = None,
    embed_model_name: str | None = None,
    embedding_provider: str = "auto",
    wait_seconds: float | None = None,
    verbose: bool = True,
    progress: Progress = "auto",
) -> RowsReport:
    r"""Make a document of every row of a table or query, in a new file or beside the documents of an existing one.

    The ``doc_id`` of a row is its collection and key: ``tickets/17``. Its text goes through the pipeline of documents:
    long ones are cut, the same text is embedded once. The other columns become its metadata for filters, numbers as
    numbers, dates and times as ISO 8601 text; the view ``rows_of_tickets`` has them in their own types, with
    ``doc_id``, ``row_key`` and ``row_text``. Results of a search have the key as ``row_key``.

    The file remembers all of it, so that :func:`update_rows` can read the source again. A source that the file has
    already is compared with what is stored, as by :func:`update_rows`. Rows are read, checked and compared before
    anything is written, and then written in batches of whole rows; a new file appears at the end. Where the provider
    stops answering, it has the rows that were finished, and the others are ``failures``.

    Parameters
    ----------
    source
        A path, a glob or a list of these (Parquet, CSV, JSON lines); one SELECT, which may read files; a DuckDB
        relation; an Arrow table, reader or object with ``__arrow_c_stream__``; a frame of pandas or polars.
    db_path
        The file; it is made where there is none.
    key
        The column that identifies a row: a whole number, decimal, text, UUID, date or timestamp, unique and not NULL.
    text
        The column to search in. A list of columns makes lines ``column: value`` of those that have a value; a template
        such as ``"{subject}\n\n{body}"`` is filled in.
    title
        The column whose text heads the chunks of a row and is embedded with them. None: the column ``title``, if
        there is one among the others.
    metadata
        The columns to keep beside the key. None: all but those of the text.
    tags
        A column of texts or lists of texts, which become the tags.
    markdown
        The text is Markdown: it is cut at its headings, and searched without its markup.
    collection
        The name of the source. None: that of the file that is read, without its suffix; a file of this name in another
        folder is refused then, unless the one that was read before is gone.
    database
        For a query: the path of the DuckDB file to run it in, which is only read and cannot reach other files; or an
        open connection of yours.
    leave_out
        Columns that are not stored, such as those of types that cannot be (BLOB, UNION, GEOMETRY).
    chunk_size, chunk_overlap, chunk_unit, stemmer
        As for :func:`prepare_embeddings`, whose defaults a new file has. A file has one chunk policy and one stemmer:
        others than those of an existing one rechunk or reindex all of it, as by :func:`update_embeddings`.
    force
        Also where more than half of the rows that the file has of the source are not in it any more.
    embedder, embed_model_name, embedding_provider
        The model, as for :func:`prepare_embeddings`. An existing file has its own: then a name is a check only.
    wait_seconds, verbose, progress
        As for :func:`update_embeddings`.

    Returns
    -------
    RowsReport
        The counts; rows without text, and those that cannot be embedded, are named in ``failures``.

    Raises
    ------
    InputError
        There is no such column, the key is missing, not unique or of another type, a column cannot be stored, the query
        is not one SELECT, the source cannot be read, has no rows, or has lost more than half of them, or the collection
        is that of another file. Nothing has been changed.
    NotFoundError
        There is no such file to read.
    StoreLockedError, NotAStoreError, SchemaVersionError, StoreError
        The file cannot be written, or the database to be read is in use.
    ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
        As for :func:`update_embeddings`.

    Examples
    --------
    >>> print(index_rows("tickets.parquet", "kb.duckdb", key="id", text="body", title="subject"))  # doctest: +SKIP
    """
    definition = definition_of(
        source, database, key=key, text=text, title=title, metadata=metadata, tags=tags, markdown=markdown,
        leave_out=leave_out,
    )  # fmt: skip
    is_named = collection is not None
    if collection is None:
        name = Path(definition.source[0]).name.partition(".")[0] if definition.kind == "files" else ""
        if not name or set(name) & set("*?[:#/"):
            raise InputError("Rows of a query, an object or several files need a name, such as collection='tickets'.")
        collection = name
    collection = checked_collection(collection, 1)
    policy = wanted_policy(chunk_size, chunk_overlap, chunk_unit)
    if stemmer is not None:
        lexical.check_stemmer(stemmer)
    options = _Options(
        arguments.flag("force", force),
        verbose=arguments.flag("verbose", verbose),
        progress=progress,
        policy=policy,
        stemmer=stemmer,
        is_named=is_named,
    )
    given = None if embedder is None else as_embedder(embedder)
    path = Path(os.fspath(arguments.path("db_path", db_path)))
    check_suffix(path)
    if not path.exists():
        changed_policy(ChunkPolicy(), policy)  # before anything is read
    connection = database if isinstance(database, duckdb.DuckDBPyConnection) else None
    with closing(scratch.Folder()) as folder:
        run, report = _run(collection, definition)
        staging = _staging(run, folder.path, definition, source, connection)
        with closing(staging), ExitStack() as opened:
            if path.exists():
                run.kept = opened.enter_context(Kept(path, report.warnings, updating=True))
                opened.enter_context(opened_file := Database.open(path, read_only=False, wait_seconds=wait_seconds))
                update = _RowUpdate(opened_file, run, report, given, embed_model_name)
                update.choose_policy({})
            else:
                if not report.files:
                    raise InputError(f"There are no rows in {definition}, so no file was made.")
                model = given or model_of_new_file(embed_model_name, embedding_provider, report.warnings, stacklevel=4)
                output = check_output(path, overwrite=False)
                run.kept = opened.enter_context(Kept(output, report.warnings))
                run.kept.how_far = lambda count: f"{counted(count, 'text')} of {counted(report.files, 'row')} are"
                temporary = opened.enter_context(new_file(output, overwrite=False))
                made = opened.enter_context(Database.create(temporary, model.dimensions))
                made.limit_memory(memory_for(max(3 * staging.bytes, _MEMORY_OF_A_ROW * report.files)))
                update = _begin(made, run, report, model, options)
            update.apply(staging, definition, options)
            if not update.is_new:
                run.stop_if_down(_STOPPED)
            update.end(opened)
    run.stop_if_down(_STOPPED)
    return report


@public
def update_rows(
    db_path: str | os.PathLike[str],
    *,
    collection: str | None = None,
    source: Any = None,
    database: Any = None,
    prune: bool = False,
    since: str | None = None,
    force: bool = False,
    embedder: AnyEmbedder | None = None,
    wait_seconds: float | None = None,
    verbose: bool = True,
    progress: Progress = "auto",
) -> list[RowsReport]:
    """Read the remembered sources of rows again and bring the file up to date: only changed texts are embedded.

    Rows are compared by key, and by the hashes of their text and of their columns. Where only other columns have
    changed, they are written without the model. A source whose columns have changed is compared as it is now, and the
    report says what became of the columns.

    Parameters
    ----------
    db_path
        The file.
    collection
        One source. None: all that can be read again, one after the other; a warning of the first report names the
        others, or one of Python where there is no report.
    source, database
        The rows of ``collection``, where they were an object of Python or of a connection; the options are those that
        the file remembers.
    prune
        Remove rows that the source has no more, and those that have lost their text. False: the report counts the
        former as ``missing``.
    since
        A column that grows with every change, such as ``updated_at``, of numbers, dates or timestamps: only rows whose
        value is the greatest finite one of the last run with this option, or greater, are read; all at the first run,
        and where the column is of another type than then. A column of text is compared by the times of ISO 8601 in it;
        rows with other values, and those of any type without one, are read by every run. Rows that are gone are not
        noticed then.
    force
        Also where more than half of the rows that the file has of the source are not in it any more.
    embedder
        The file's model, loaded by you.
    wait_seconds, verbose, progress
        As for :func:`update_embeddings`.

    Returns
    -------
    list of RowsReport
        One for each source that was read, in the order of the collections; the list prints as their texts.

    Raises
    ------
    InputError
        As for :func:`index_rows`; or ``since`` and ``prune`` are combined, or the source of ``collection`` was an
        object of Python and is not given. With several sources, the others have been updated; the error is that of the
        first, its message names all, and its ``report`` is the list of the reports.
    NotFoundError
        The file has no such source of rows, or a file to read is gone.
    StoreLockedError, NotAStoreError, SchemaVersionError, StoreError
        As for :func:`index_rows`.
    ModelMismatchError, ModelUnavailableError, MissingExtraError, ProviderError
        As for :func:`update_embeddings`.
    """
    prune, force = arguments.flag("prune", prune), arguments.flag("force", force)
    arguments.texts(collection=collection, since=since)
    if since is not None and prune:
        raise InputError("since reads a part of the rows, so prune cannot know which are gone. Use one of them.")
    given = None if embedder is None else as_embedder(embedder)
    with Database.open(db_path, wait_seconds=wait_seconds) as opened_file:
        known = row_tables.sources(opened_file.cursor())
    names = [clean_name(collection)] if collection is not None else list(known)
    if not names or names[0] not in known:
        there = f"It has {', '.join(known)}." if known else "index_rows adds one."
        raise NotFoundError(f"{db_path} has no source of rows{f' {collection!r}' if collection else ''}. {there}")
    if source is not None and len(names) > 1:
        raise InputError("Name the collection that the source is of.")
    reports = Reports()
    lost: dict[str, SqlragError] = {}
    skipped = []
    for name in names:
        try:
            definition = Definition.of(known[name])
            if source is None and definition.kind == "object" and collection is None:
                skipped.append(name)  # nobody could have handed it in
                continue
            options = _Options(force, prune, since, arguments.flag("verbose", verbose), progress)
            reports.append(_again(db_path, known[name], definition, source, database, given, wait_seconds, options))
        except SqlragError as error:
            if isinstance(error, NotFoundError):
                said = (
                    f"{error} If it was moved, index it from its new place with collection={name!r}; if it is gone for "
                    f"good, this deletes all of that collection, and the table is not read any more: "
                    f"delete_documents({os.fspath(db_path)!r}, collection={name!r})"
                )
                error.args = (said,)
            if error.report is not None:  # a provider may end it half-way
                reports.append(error.report)
            lost[name] = error
    if skipped and reports:
        reports[0].warnings.append(not_read_again(db_path, skipped))
    if lost:
        first = next(iter(lost.values()))
        if len(names) > 1:
            by_error: dict[str, list[str]] = {}
            for name, one in lost.items():  # the file may be locked for all
                by_error.setdefault(str(one), []).append(name)
            lines = [f"{', '.join(those)}: {said}" for said, those in by_error.items()]
            if updated := [report.collection for report in reports if report.collection not in lost]:
                lines.append(f"Updated: {', '.join(updated)}.")
            first.args = ("\n".join(lines),)
            first.report = reports
        raise first
    if not reports:
        warnings.warn(not_read_again(db_path, skipped), stacklevel=3)
    return reports


def not_read_again(db_path: str | os.PathLike[str], collections: Sequence[str]) -> str:
    """Return that the rows of these collections were given by a program, and what hands them in again."""
    return (
        f"The rows of {', '.join(collections)} were given by a program, so they were not read again. Pass them in "
        f"Python: update_rows({os.fspath(db_path)!r}, source=…, collection={collections[0]!r})."
    )


def _again(
    db_path: str | os.PathLike[str],
    known: RowSource,
    definition: Definition,
    source: Any,
    database: Any,
    embedder: Embedder | None,
    wait_seconds: float | None,
    options: _Options,
) -> RowsReport:
    """Read one remembered source again."""
    name, since = known.collection, options.since
    if source is None and definition.kind == "object":
        raise InputError(not_read_again(db_path, [name]))
    connection = database if isinstance(database, duckdb.DuckDBPyConnection) else None
    if source is not None:
        definition = definition_of(source, database, **{k: getattr(definition, k) for k in _OPTIONS})
    marks = {
        name.casefold(): (name, mark[0], mark[1]) for name, mark in known.watermarks.items() if isinstance(mark, list)
    }
    at = None if since is None else marks.get(since.casefold())
    with closing(scratch.Folder()) as folder:
        run, report = _run(name, definition)
        staging = _staging(run, folder.path, definition, source, connection, at, name)
        with (
            closing(staging),
            Database.open(db_path, read_only=False, wait_seconds=wait_seconds) as opened_file,
            Kept(opened_file.path, report.warnings, updating=True) as run.kept,
        ):
            update = _RowUpdate(opened_file, run, report, embedder, None)
            update.choose_policy({})
            update.apply(staging, definition, options)
            run.stop_if_down(_STOPPED)
    return report


_STOPPED = "What was finished is stored, the other rows are failures of it; update_rows does the rest."

_MEMORY_OF_A_ROW = 1000  # bytes: the keys of a document and a chunk, which DuckDB keeps in memory

_OPTIONS = ("key", "text", "title", "metadata", "tags", "markdown", "leave_out")


@dataclass(frozen=True)
class _Options:
    """How an update is done."""

    force: bool = False
    prune: bool = False
    since: str | None = None
    verbose: bool = True
    progress: Progress = "auto"
    policy: Mapping[str, object] = field(default_factory=dict)
    stemmer: str | None = None
    is_named: bool = True  # somebody named the collection

    @property
    def bar_off(self) -> bool | None:
        """Whether bars are off."""
        return bar_is_off(self.progress, verbose=self.verbose)


def _run(collection: str, definition: Definition) -> tuple[Run, RowsReport]:
    report = RowsReport(collection=collection)
    run = Run("rows", Path(), collection, report)
    run.input_dir = clean_name(definition.source[0]) if definition.kind == "files" else ""
    return run, report


def _staging(
    run: Run,
    folder: Path,
    definition: Definition,
    given: Any,
    connection: Any,
    since: tuple[str, str, str] | None = None,
    remembered: str = "",
) -> Staging:
    with run.timed("read"):
        staging = Staging(folder, definition, given, connection, since, remembered)
    try:
        with run.timed("find"):
            run.report.files = staging.stage(run.collection)
            run.report.warnings += staging.notes
    except BaseException:
        staging.close()
        raise
    return staging


def _begin(database: Database, run: Run, report: RowsReport, model: Embedder, options: _Options) -> _RowUpdate:
    """Return the update of a new file, whose words are indexed at the end."""
    run.embedder = model
    run.policy = fit_to_window(changed_policy(ChunkPolicy(), options.policy), model, report, is_new=True, stacklevel=5)
    begin(database, run, DEFAULT_HEADING_WEIGHT, options.stemmer or lexical.DEFAULT_STEMMER)
    update = _RowUpdate(database, run, report, model, None)
    update.is_new = True
    return update


class _RowUpdate(Update):
    """The update of one source of rows."""

    is_new = False

    def __init__(
        self, database: Database, run: Run, report: RowsReport, embedder: Embedder | None, model_name: str | None
    ) -> None:
        self.rows = report
        super().__init__(database, run, cast("Any", report), embedder, model_name)

    def apply(self, staging: Staging, definition: Definition, options: _Options) -> None:
        """Compare the rows with the file and write what differs."""
        run, report = self.state, self.rows
        collection = run.collection
        self._columns = staging.columns
        if options.since is not None:
            column, notes = staging.growing(options.since)
            options = replace(options, since=column)
            report.warnings += notes
        with run.timed("find"):
            con = self.database.cursor()
            before = row_tables.sources(con)
            row_tables.check_name(collection, before)
            source = before.get(collection)
            if source is not None and not options.is_named:
                _refuse_another_file(Definition.of(source), definition, collection)
            if source is None and (there := _also_stored(con, before.values(), staging, definition)):
                old, places, is_gone = there
                gone = ", which is not there any more" * is_gone
                if not options.is_named:
                    name = "If that file was moved, name" if is_gone else "Name"
                    raise InputError(
                        f"These rows are in the file as {old!r}, read from {places}{gone}. {name} its collection: "
                        f"collection={old!r}; to have both, collection={collection!r}."
                    )
                report.warnings.append(
                    f"These rows are in the file as {old!r} too, read from {places}{gone}, so searches find both. To "
                    "have them once, delete those: "
                    f"delete_documents({os.fspath(self.database.path)!r}, collection={old!r})"
                )
            mime = ROW_MARKDOWN if definition.markdown else ROW
            with con.cursor() as reader:
                found = staging.compare([] if self.is_new else self._states(reader, source, mime, staging))
            if not options.force and options.since is None and found["gone"] * 2 > found["stored"]:
                given = ", ".join([repr(os.fspath(self.database.path)), *["source=…"] * (definition.kind == "object")])
                # An update reads what is stored.
                then = ", after that" * (source is None or Definition.of(source) != definition)
                remedy = (
                    "To remove those, pass force=True as well."
                    if options.prune
                    else f"To add these rows and keep those, pass force=True; to remove those{then}: "
                    f"update_rows({given}, collection={collection!r}, prune=True, force=True)."
                )
                raise InputError(
                    f"{collection} has lost {found['gone']:,} of the {found['stored']:,} rows that the file has of it, "
                    f"more than half: they are not in {definition}. {remedy}"
                )
            is_other = source is None or Definition.of(source) != definition
            known: dict[str, str] = {}
            if source is not None:
                _refuse_renamed(con, source, staging)
                report.warnings += _changed_columns(con, source, staging, definition)
                known = {} if is_other else row_tables.columns_of(con, source.collection)
            report.warnings += staging.notes_on_types(set(staging.columns) - set(known))
            if is_other and definition.kind == "query" and not definition.database:
                report.warnings += note_on_relative_paths(definition.source[0])
        if found.get("added") or found.get("changed"):
            self._model()  # before anything is written
        if not self.is_new and (options.policy or options.stemmer):
            self._change(options)
        report.unchanged = report.files - sum(found.get(kind, 0) for kind in ("added", "changed", "columns", "foreign"))
        with self.database.transaction() as con:
            row_tables.create(con, collection, staging.columns, staging.key)
            marks = source.watermarks if source is not None else {}
            row_tables.remember(con, collection, definition.as_json(), definition.digest, staging.key_type, marks)
            if metadata.folder_of(con, collection) is None:
                metadata.record_collection(con, collection, "")
        self._fill(staging, mime, sum(found.values()) - found["gone"] - found["stored"], options)
        report.warnings += staging.note_unread()
        with run.timed("store"):
            self._conclude(staging, found["gone"], options, definition, marks)

    def _change(self, options: _Options) -> None:
        """Give the whole file another chunk policy or stemmer."""
        done = change_settings(self.database, options.policy, options.stemmer, self._given, options.bar_off)
        notes = done.warnings
        if done.rechunked:
            notes.append(f"The chunk policy has changed: {counted(len(done.rechunked), 'document')} rechunked.")
        if done.reindexed:
            notes.append(f"The stemmer is {options.stemmer} now: every chunk was reindexed.")
        self.rows.warnings += notes
        self.metadata = required_metadata(self.database)
        self.policy = chunk_policy_of(self.database.path, self.metadata)
        self.stemmer = self.metadata["stemmer"]
        self.choose_policy({})

    def end(self, opened: ExitStack) -> None:
        """Index the words of a new file; ``opened`` then closes it and gives it its name."""
        if self.is_new:
            if not self.rows.documents:
                self.state.stop_if_down("No row was finished, so no file was made.")
                reasons = "; ".join(f"{one.doc_id}: {one.reason}" for one in self.rows.failures[:5])
                raise InputError(f"No row has a text, so no file was made. {reasons}")
            with ending(self.database, self.state, self.stemmer) as con:
                self.rows.warnings += model_fit(con)
        opened.close()

    def _states(
        self, con: duckdb.DuckDBPyConnection, source: RowSource | None, mime: str, staging: Staging
    ) -> Iterator[pa.RecordBatchReader]:
        """Yield the rows that the file has of a source, then the documents that have ids of its rows otherwise.

        Each has to be read before the next. Where the columns are others now, or that of the tags, no row has its hash.
        """
        collection = self.state.collection
        table = "(SELECT '' AS doc_id, '' AS row_hash LIMIT 0)"
        if source is not None:
            same = row_tables.columns_of(con, collection) == dict(staging.columns)
            same = same and Definition.of(source).tags == staging.definition.tags
            row_hash = "row_hash" if same else "'' AS row_hash"
            table = f"(SELECT doc_id, {row_hash} FROM {identifier(row_tables.table_of(collection))})"  # noqa: S608 - quoted
        missing = read_sql("checks/missing_chunks").rstrip().removesuffix(";")
        stored = (
            read_sql("rows/stored")
            .replace("JOIN row_values", f"JOIN {table}")
            .replace("(FROM missing)", f"(\n{missing}\n)")
        )
        own = {"prefix": f"{collection}/", "row": ROW}
        yield arrow_reader(con.sql(stored, params={**own, "mime": mime}), ROWS_AT_ONCE)
        yield arrow_reader(con.sql(read_sql("rows/foreign"), params=own), ROWS_AT_ONCE)

    def _fill(self, staging: Staging, mime: str, total: int, options: _Options) -> None:
        run, size = self.state, ROWS_AT_ONCE
        with (
            Bar("rows", "row", total, off=options.bar_off) as bar,
            noting(lambda: "" if self.is_new else self._how_far(bar)),
        ):
            for rows, values in staging.groups(min(size, run.group) if run.embedder is not None else size):
                written = self._group(rows, values, mime)
                bar.made(len(rows))
                if run.outage is not None:
                    done = {*written, *(failure.doc_id for failure in run.report.failures)}
                    here = [row["doc_id"] for row in rows if row["doc_id"] not in done]
                    run.report_unfinished(chain(here, staging.after(rows[-1]["doc_id"])))
                    return

    def _group(self, rows: list[dict[str, Any]], values: pa.Table, mime: str) -> list[str]:
        """Write a group of rows in one transaction; return the ids of those that were written."""
        run, report = self.state, self.rows
        kinds: dict[str, str] = {}
        fresh: list[Document] = []
        copied: list[tuple[Document, str]] = []
        with run.timed("read"):
            for row in rows:
                doc_id, kind = row["doc_id"], row["row_kind"]
                with run.reporting(doc_id):
                    if kind == "foreign":
                        reason = "the file has a document of this doc_id that is not from this source; delete that one"
                        run.fail(Failure(doc_id, "failed", f"{reason} (delete_documents), or name another collection"))
                        continue
                    document = _document(row, run.collection, mime)
                    if document is None:
                        run.fail(Failure(doc_id, "empty", "the row has no text"))
                        continue
                    kinds[doc_id] = kind
                    if kind == "columns":
                        copied.append((document, doc_id))
                    elif row["twin"] is not None:
                        copied.append((document, row["twin"]))
                    else:
                        fresh.append(document)
        documents, slices, vectors, late = self._copies(copied)
        kept, chunks = self._free(self.database.cursor(), documents, slices, Plan())
        if len(chunks) < len(slices):
            free = {document.doc_id for document in kept}
            vectors = vectors[[chunk.doc_id in free for chunk in slices]]
        report.same += sum(row["twin"] is not None for row in rows if kinds.get(row["doc_id"]) != "columns")
        if fresh := [*fresh, *late]:
            self._model()
            cuts = [cut for cut in (run.cut(document) for document in fresh) if cut is not None]
            new, cut = [document for document, _ in cuts], [one for _, own in cuts for one in own]
            with run.timed("embed"):
                before = report.embedded + report.reused
                new, cut, made = run.embed(*self._free(self.database.cursor(), new, cut, Plan()))
                report.same += len(cut) - (report.embedded + report.reused - before)
            kept, chunks, vectors = [*kept, *new], [*chunks, *cut], np.concatenate([vectors, made])
        if not kept:
            return []
        ids = [document.doc_id for document in kept]
        with run.timed("store"), self.database.transaction() as con:
            given = (con, kept, chunks, vectors)
            policy = policy_text(run.policy)
            compatible = self.metadata.get("llama_index_compatible", "True") == "True"
            if self.is_new:
                stored_documents.insert_rows(*given, llama_index_compatible=compatible, policy=policy)
            else:
                stored_documents.replace_rows(
                    *given, stemmer=self.stemmer, llama_index_compatible=compatible, policy=policy
                )
                metadata.clear_failures(con, ids)
            of_kept = pc.is_in(values["doc_id"], value_set=pa.array(ids, pa.string()))
            row_tables.insert(con, run.collection, self._columns, values.filter(of_kept))
        report.documents += len(kept)
        report.chunks += len(chunks)
        for doc_id in ids:
            name = "columns_changed" if kinds[doc_id] == "columns" else kinds[doc_id]
            setattr(report, name, getattr(report, name) + 1)
        return ids

    def _copies(
        self, wanted: list[tuple[Document, str]]
    ) -> tuple[list[Document], list[Chunk], Vectors, list[Document]]:
        """Return documents with the chunks and vectors of stored ones of the same text, and those without any."""
        if not wanted:
            return [], [], np.empty((0, self.identity.dimensions), dtype=np.float32), []
        ids = sorted({twin for _, twin in wanted})
        table = self.database.cursor().sql(read_sql("rows/slices"), params={"doc_ids": ids}).to_arrow_table()
        vectors = vector_matrix(table["embedding"], self.identity.dimensions)
        found: dict[str, list[tuple[int, dict[str, Any]]]] = {}
        for place, row in enumerate(table.drop_columns(["embedding"]).to_pylist()):
            found.setdefault(row["doc_id"], []).append((place, row))
        kept: list[Document] = []
        late: list[Document] = []
        chunks, places = [], []
        for document, twin in wanted:
            (kept if twin in found else late).append(document)
            common = chunk_metadata(document)
            for index, (place, row) in enumerate(found.get(twin, ())):
                start, end = row["i_start"], row["i_end"]
                chunks.append(
                    Chunk(
                        document.doc_id, index, document.text[start:end], document.tags, dict(common),
                        document.collection, start, end, row["page"], tuple(row["heading_path"]), shown=row["shown"],
                    )
                )  # fmt: skip
                places.append(place)
        self.rows.reused += len(chunks)
        return kept, chunks, vectors[places], late

    def _conclude(
        self, staging: Staging, gone: int, options: _Options, definition: Definition, marks: dict[str, list[str]]
    ) -> None:
        """Remove what is gone, and record the results of the run."""
        run, report = self.state, self.rows
        report.failures.sort()
        whole = options.since is None
        emptied = [failure.doc_id for failure in report.failures if failure.status == "empty"]
        if whole and options.prune and run.outage is None:
            for ids in chain([emptied], staging.gone(ROWS_AT_ONCE)):
                with self.database.transaction() as con:
                    report.removed += len(stored_documents.delete(con, ids))
                    refresh_counts(con)
        else:
            report.missing = gone if whole else 0
            kept = row_tables.stored(self.database.cursor(), emptied)
            if kept:
                report.warnings.append(
                    f"{counted(len(kept), 'row')} of {run.collection} had a text before and have none now, such as "
                    f"{kept[0]}. The file keeps them as they were; prune=True in update_rows removes them."
                )
        with self.database.transaction() as con:
            if whole and run.outage is None:
                metadata.clear_failures_of_rows(con, run.collection)
            metadata.record_failures(con, report.failures)
            if options.since is not None and run.outage is None and not report.failed:
                value = staging.greatest(options.since)
                marks = marks if value is None else {**marks, options.since: [value, staging.types[options.since]]}
            row_tables.remember(con, run.collection, definition.as_json(), definition.digest, staging.key_type, marks)
            metadata.log_run(con, run.row(removed=report.removed))


def _document(row: dict[str, Any], collection: str, mime: str) -> Document | None:
    """Return a row as a document, None where it has no text."""
    text = normalize(row["row_text"] or "")
    if is_blank(text):
        return None
    values = clean_metadata(row["metadata"])
    if row["row_title"] is not None:
        values["title"] = normalize(row["row_title"])
    tags = row["row_tags"] or ()
    return Document(
        row["doc_id"],
        text,
        collection,
        file_name=row["doc_id"].rpartition("/")[2],
        checksum=row["row_checksum"],
        mime=mime,
        size_bytes=len(text.encode()),
        tags=tuple(dict.fromkeys(clean_name(str(tag)) for tag in ([tags] if isinstance(tags, str) else tags) if tag)),
        metadata=values,
        links=() if mime == ROW else None,
    )


def _refuse_another_file(stored: Definition, wanted: Definition, collection: str) -> None:
    """Raise InputError where a file has the name, not the path, of one that the rows of the collection are read from.

    One that is gone was moved.
    """
    paths = [Path(one.source[0]) for one in (stored, wanted) if one.kind == "files" and len(one.source) == 1]
    if len(paths) == 2 and all(path.exists() for path in paths) and not paths[0].samefile(paths[1]):
        folder = re.sub(r"\W+", "_", paths[1].parent.name)
        raise InputError(
            f"The file has the rows of {paths[0]} as {collection!r}, and {paths[1]} is another file, whose rows would "
            f"replace them. Name another collection for it, such as collection='{collection}_{folder}'; or, to replace "
            f"those rows, collection={collection!r}."
        )


def _also_stored(
    con: duckdb.DuckDBPyConnection, stored: Iterable[RowSource], staging: Staging, wanted: Definition
) -> tuple[str, str, bool] | None:
    """Return a collection that has most of these rows, its files, and whether they are gone; None where there is none.

    It was read from the same files, or from files that are not there any more.
    """
    own = set(map(os.path.realpath, wanted.paths))
    for source in stored:
        paths = Definition.of(source).paths
        is_gone = not any(glob.has_magic(name) or Path(name).exists() for name in paths)
        if not paths or not (is_gone or own & set(map(os.path.realpath, paths))):
            continue
        texts = staging.some_texts()
        given = {"prefix": f"{source.collection}/", "checksums": texts}
        (same,) = con.execute(read_sql("rows/same_texts"), given).fetchall()[0]
        if same * 2 > len(texts):
            return source.collection, ", ".join(paths), is_gone
    return None


def _refuse_renamed(con: duckdb.DuckDBPyConnection, source: RowSource, staging: Staging) -> None:
    """Raise InputError where a column that is left out is gone and another is new: it may be the same one."""
    if not staging.lost:
        return
    known = row_tables.columns_of(con, source.collection)
    new = [name for name in staging.columns if name not in known]
    if new:
        raise InputError(
            f"The column {staging.lost[0]!r} of {source.collection}, which is left out, is gone, and {new[0]!r} is "
            "new. Say which columns to leave out now: index_rows again with "
            f"collection={source.collection!r} and leave_out."
        )


def _changed_columns(
    con: duckdb.DuckDBPyConnection, source: RowSource, staging: Staging, definition: Definition
) -> list[str]:
    """Return what has changed in the columns and the definition of a source, and what becomes of it."""
    old, new = row_tables.columns_of(con, source.collection), staging.columns
    notes = [f"The column {name} ({kind}) is new: every row gets it." for name, kind in new.items() if name not in old]
    for name in (name for name in old if name not in new):
        why = "is not in the source any more"
        if name in staging.of_text:
            why = "is a part of the text now, and not named in metadata"
        elif name in staging.types:
            why = "is left out now"
        notes.append(f"The column {name} {why}: its values are removed.")
    for name, kind in new.items():
        if (before := old.get(name, kind)) == kind:
            continue
        notes.append(f"The column {name} is {kind} now, not {before}: its values are written again.")
        if kind == "VARCHAR" and (value := staging.first_that_is_no(before, name)) is not None:
            notes[-1] += f" {value!r} is no {before}; filters compare all of them as text now."
    stored, now = Definition.of(source).as_json(), definition.as_json()
    if other := [name for name in now if stored[name] != now[name]]:
        notes.append(
            f"The definition of {source.collection} has changed ({', '.join(other)}); what that changes is written "
            "again."
        )
    return notes
