"""``sqlrag search``, ``hybrid-query``, ``vector-query``, ``lexical-query``, ``explain`` and ``evaluate``."""

from __future__ import annotations

import inspect
import json
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sqlrag.cli.app import command
from sqlrag.cli.clock import import_seconds
from sqlrag.cli.options import (
    NO_FILES,
    Dbs,
    FormatName,
    Sql,
    Text,
    Timings,
    chosen,
    flags_of,
    option,
    where,
    with_options,
)
from sqlrag.cli.printing import (
    Format,
    shows_colour,
    terminal_width,
    write,
    write_json,
    write_marked,
    write_message,
    write_rows,
)
from sqlrag.errors import InputError, NotFoundError
from sqlrag.ranking.plan import (
    Mode,
    OfResults,
    StoreExplainOptions,
    StoreHybridOptions,
    StoreLexicalOptions,
    StoreVectorOptions,
    canonical,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlrag.search.queries import Queries

Explain = Annotated[bool, option("--explain", help="Explain the rank of each result.")]

_NO_WORDS: Any = ()

_LEXICAL_FIRST = ("top_k", "conjunctive", "plain")


@command(
    "hybrid-query",
    "Search by meaning and by words.",
    "sqlrag hybrid-query 'How do I filter by tag?' --db kb.duckdb --top-k 3",
    "sqlrag hybrid-query 'rate limits' --db kb.duckdb --fusion convex --tag api --metadata year=2024 --format json",
    "sqlrag hybrid-query 'rate limits' --db january.duckdb --db february.duckdb",
    hidden=True,
)
@with_options(*flags_of(StoreHybridOptions), after="db")
def hybrid_query(
    query_text: Text,
    db: Dbs = NO_FILES,
    form: FormatName = Format.table,
    sql: Sql = False,
    timings: Timings = False,
    explain: Explain = False,
    **options: Any,
) -> None:
    """Search by meaning and by words at once, and fuse both rankings."""
    given = canonical(chosen(options))
    unsupported = [given[name] for name in ("feedback", "expansion", "syntax")]
    unsupported += [given["min_similarity"] is not None, given["vector_top_k"] != given["lexical_top_k"]]
    if sql and any(unsupported):
        raise typer.BadParameter(
            "The SQL macro hybrid_query has no counterpart of --min-similarity, --feedback, --expansion and --syntax, "
            "nor of different values for --vector-top-k and --fts-top-k. Leave them out, or leave --sql out."
        )
    given["strict"] |= given["model_name"] is not None  # an unknown model that was named is an error, not a notice
    _answer("hybrid", db, query_text, given, form, sql=sql, timings=timings, explain=explain)


@command(
    "vector-query",
    "Search by meaning alone.",
    "sqlrag vector-query 'another program holds my file' --db kb.duckdb --min-similarity 0.3",
)
@with_options(*flags_of(StoreVectorOptions), after="db")
def vector_query(
    query_text: Text,
    db: Dbs = NO_FILES,
    form: FormatName = Format.table,
    sql: Sql = False,
    timings: Timings = False,
    explain: Explain = False,
    **options: Any,
) -> None:
    """Search by meaning alone: the chunks whose vectors are nearest to the question's."""
    _answer("vector", db, query_text, chosen(options), form, sql=sql, timings=timings, explain=explain)


@command(
    "lexical-query",
    "Search by words alone (BM25).",
    "sqlrag lexical-query 'StoreLockedError PID' --db kb.duckdb --all-words",
)
@with_options(
    *_LEXICAL_FIRST,
    *(name for name in flags_of(StoreLexicalOptions) if name not in (*_LEXICAL_FIRST, "syntax")),
    after="db",
)
def lexical_query(
    query_text: Text,
    db: Dbs = NO_FILES,
    plain: Annotated[bool, option("--plain", help="Quotes and stars are plain punctuation.")] = False,
    form: FormatName = Format.table,
    sql: Sql = False,
    timings: Timings = False,
    explain: Explain = False,
    **options: Any,
) -> None:
    """Search by words alone, ranked by BM25. No embedding model is needed."""
    given = {**chosen(options), "syntax": not plain}
    _answer("lexical", db, query_text, given, form, sql=sql, timings=timings, explain=explain)


_BY_MODE: dict[Mode, tuple[Any, Any]] = {
    "hybrid": (hybrid_query, StoreHybridOptions),
    "vector": (vector_query, StoreVectorOptions),
    "lexical": (lexical_query, StoreLexicalOptions),
}


@command(
    "search",
    "Search by meaning and by words.",
    "sqlrag search how do I filter by tag --db kb.duckdb",
    "sqlrag search 'rate limits' --db kb.duckdb --tags-any api --metadata year=2024 --format json",
    "sqlrag search StoreLockedError --mode lexical --db kb.duckdb",
    "sqlrag search 'rate limits' --db january.duckdb --db february.duckdb",
)
@with_options("mode", *flags_of(StoreHybridOptions), "conjunctive", after="db")
def search(
    query_text: Text,
    db: Dbs = NO_FILES,
    form: FormatName = Format.table,
    sql: Sql = False,
    timings: Timings = False,
    explain: Explain = False,
    **options: Any,
) -> None:
    """Search by meaning and by words at once, or by one of them (--mode); quotes around the question may be left out.

    The file may be left out where the working folder has one only.
    """
    mode = options.pop("mode").value
    function, taken = _BY_MODE[mode]
    given = {name: value for name, value in options.items() if name in taken.__optional_keys__}
    parameters = inspect.signature(search).parameters
    unused = [name for name in options.keys() - given.keys() if options[name] != parameters[name].default]
    if unused:
        raise InputError(f"{min(unused)}={options[min(unused)]!r} has no effect with mode={mode!r}.")
    if mode == "lexical":
        given["plain"] = False
        given.pop("syntax")
    inspect.unwrap(function)(query_text, db=db, form=form, sql=sql, timings=timings, explain=explain, **given)


@command(
    "explain",
    "Explain the rank of a chunk.",
    "sqlrag explain 'How do I filter by tag?' guides/filters.md#2 --db kb.duckdb",
)
@with_options(*(name for name in flags_of(StoreExplainOptions) if name not in ("model_name", "strict")), after="db")
def explain(
    query_text: Text = _NO_WORDS,
    node_id: Annotated[
        str, typer.Argument(metavar="NODE_ID", help="The chunk, found or not.", show_default=False)
    ] = "",
    db: Dbs = NO_FILES,
    syntax: Annotated[
        bool | None,
        option("--syntax/--plain", help="Quotes and stars are operators, or plain text. [--plain; lexical: --syntax]"),
    ] = None,
    conjunctive: Annotated[bool, option("--all-words", help="lexical: only chunks that hold every word.")] = False,
    form: FormatName = Format.table,
    **options: Any,
) -> None:
    """Explain the score of a chunk: ranks, cosine, and what each word adds; or why it was not found."""
    from sqlrag.ranking.explanation import TermPart
    from sqlrag.search.open import open_store

    if not query_text or not node_id:  # click fills the last one first
        alone = query_text or node_id
        chunk = alone if "#" in alone else f"{alone}#0" if Path(alone).suffix else "guides/filters.md#2"
        raise typer.BadParameter(
            f"Name a question and the id of a chunk, which search shows, such as: sqlrag explain 'my question' {chunk}"
        )
    with open_store(where(db)) as store:
        try:
            explained = store.explain(query_text, node_id, syntax=syntax, conjunctive=conjunctive, **chosen(options))
        except NotFoundError as error:
            if "#" not in query_text or "#" in node_id:
                raise
            swapped = f"sqlrag explain {shlex.quote(node_id)} {shlex.quote(query_text)}"
            raise NotFoundError(f"{error} The question comes before the id: {swapped}") from error
    for notice in explained.notices:
        write_message(f"note: {notice}")
    if form is Format.json:
        write_json(explained.to_dict())
    else:
        terms = explained.to_dict()["lexical"]["terms"] if explained.lexical else []
        write_rows(terms, list(TermPart.__dataclass_fields__), form, str(explained))


def _answer(
    mode: Mode,
    db: list[Path],
    query_text: str,
    given: dict[str, Any],
    form: Format,
    *,
    sql: bool,
    timings: bool,
    explain: bool,
) -> None:
    """Search the file or files, and write the results or their SQL, with explanations if wanted."""
    if explain and sql:
        raise typer.BadParameter("--sql does not search, so --explain has nothing to explain. Leave one of them out.")
    if len(db) > 1 and (sql or explain):
        raise typer.BadParameter("--sql and --explain take one file. Leave them out, or merge the files: sqlrag merge")
    if sql and given["context"] != "chunk":
        raise typer.BadParameter("The SQL macros have no counterpart of --context. Leave it out, or leave --sql out.")
    for word in sorted({str(path) for path in Path().glob("*.duckdb")} & set(query_text.split())):
        write_message(f"note: {word} is searched for as a word; the file to search is named by --db {word}")
    if given.get("per_document") is None or sql:  # the macros have no counterpart
        given["per_document"] = 2 if form is Format.table and not sql else 0
    began = time.perf_counter()
    from sqlrag.ranking.results import format_results, in_json, keys_of, wrapped
    from sqlrag.search.open import open_store

    imported = time.perf_counter()
    with open_store(where(db)) as store:
        opened = time.perf_counter()
        vector = {"query_vector": _placeholder_vector(store)} if sql and mode != "lexical" else {}
        results = getattr(store, f"{mode}_query")(query_text, **given, **vector)
        known = "query_embeddings" not in results.sql or _is_embedded(store, query_text)
        given = {name: value for name, value in given.items() if name not in OfResults.__optional_keys__}
        explanations = [store.explain(query_text, row["node_id"], mode=mode, **given) for row in results if explain]
    for notice in results.notices if not sql else ():  # --sql searched with a placeholder vector
        write_message(f"note: {notice}")
    if timings:
        for leg, method in results.methods.items():
            write_message(f"{leg} leg: {method}")
        write_message(_timings(import_seconds() + imported - began, opened - imported, results.timings))
    if not sql:
        results.notices = []  # they are on standard error
        columns, rows = keys_of(results), list(map(in_json, results))
        text = format_results(results, query_text, width=terminal_width())
        if results.further:
            also = [f"Also in {doc_id}: {_few(ids)}" for doc_id, ids in results.further.items()]
            text = "\n".join([text, "", *(line for one in also for line in wrapped(one, width=terminal_width()))])
        if results.files:
            text = "\n".join([text, *(f"{node_id} is from {path}" for node_id, path in results.files.items())])
        if form is Format.table and results.marks is not None and shows_colour():
            write_marked("\n\n".join([text, *map(str, explanations)]), results.marks)
            return
        if explain:
            columns = (*columns, "explanation")
            rows = [row | {"explanation": one.to_dict()} for row, one in zip(rows, explanations, strict=True)]
            text = "\n\n".join([text, *map(str, explanations)])
        write_rows(rows, columns, form, text)
        return
    write(results.sql)
    if not known:
        embed = f"sqlrag embed {shlex.quote(query_text)} --db {shlex.quote(str(db[0]))}"
        write_message(f"note: the statement needs the question's vector, which is not in the file yet: {embed}")


def _few(node_ids: list[str]) -> str:
    return ", ".join(node_ids[:5]) + (f" and {len(node_ids) - 5} more" if node_ids[5:] else "")


def _timings(imports: float, opening: float, measured: Mapping[str, float]) -> str:
    """Format where the time of a query went; legs run in parallel, so their sum may exceed the time of the search."""

    def formatted(stages: Mapping[str, float]) -> str:
        return ", ".join(f"{stage} {seconds * 1000:.1f} ms" for stage, seconds in stages.items())

    model = {stage: measured.get(stage, 0.0) for stage in ("load", "embed")}
    search = measured["total"] - sum(model.values())
    parts = {stage: seconds for stage, seconds in measured.items() if stage not in {*model, "total"}}
    stages = formatted({"import": imports, "open": opening, **model, "search": search})
    return f"timings: {stages} ({formatted(parts)}), total {(imports + opening + measured['total']) * 1000:.1f} ms"


def _is_embedded(store: Queries, query_text: str) -> bool:
    found = store.cursor().execute("SELECT 1 FROM query_embeddings WHERE query_text = $1", [query_text]).fetchone()
    return found is not None


def _placeholder_vector(store: Queries) -> list[float]:
    """Return an arbitrary vector: the SQL of a query does not depend on it, so no model has to be loaded."""
    return [1.0] * store.dimensions


Questions = Annotated[
    Path | None,
    typer.Argument(
        metavar="[QUESTIONS]",
        help="A CSV with the columns question and document, JSONL of query and relevant, or a folder in BEIR layout.",
        show_default=False,
    ),
]

Trec = Annotated[Path | None, option("--trec", metavar="FOLDER", help="Write qrels and runs for trec_eval here.")]


def _plans(given: list[str]) -> dict[str, Any] | None:
    """Return NAME and NAME={…} as the plans of the function."""
    from sqlrag.explore.evaluate import PRESETS

    plans: dict[str, Any] = {}
    for one in given:
        name, equals, options = one.partition("=")
        if name in plans:
            raise typer.BadParameter(f"There are two plans {name!r}. Give each a name of its own.")
        if not equals and name not in PRESETS:
            raise typer.BadParameter(
                f"{name!r} is none of {', '.join(PRESETS)}. Name one of them, or give NAME={{options as JSON}}."
            )
        try:
            plans[name] = json.loads(options) if equals else PRESETS[name]
        except ValueError as error:
            raise typer.BadParameter(
                f'The options of the plan {name!r} are not JSON, such as {name}=\'{{"fusion": "rrf"}}\': {error}'
            ) from error
    return plans or None


def _parts(given: str | None) -> list[str]:
    return [part.strip() for part in (given or "").split(",") if part.strip()]


def _sizes(given: str | None) -> list[int]:
    for part in _parts(given):
        if not part.isascii() or not part.isdigit():
            raise typer.BadParameter(f"--chunk-sizes takes whole numbers, such as 200,400, not {part!r}.")
    return [int(part) for part in _parts(given)]


@command(
    "evaluate",
    "Measure how well searches rank.",
    "sqlrag evaluate questions.csv --db kb.duckdb",
    "sqlrag evaluate --headings --db kb.duckdb",
    'sqlrag evaluate scifact --db scifact.duckdb --plan rrf --plan \'tuned={"fusion": "convex", "alpha": 0.6}\' '
    "--measure nDCG@10",
    "sqlrag evaluate questions.csv --db kb.duckdb --recommend --stemmers english,none --chunk-sizes 100,400",
)
def evaluate(
    questions: Questions = None,
    db: Dbs = NO_FILES,
    headings: Annotated[
        bool,
        option("--headings", help="Ask for the file's own headings: shows whether it works, and judges nothing."),
    ] = False,
    plan: Annotated[
        list[str] | None,
        option(
            "--plan",
            metavar="NAME",
            help="lexical, vector, rrf, weighted, convex or adaptive; or NAME={options as JSON}. Repeatable. [all six]",
        ),
    ] = None,
    against: Annotated[
        str | None,
        option("--against", metavar="NAME", help="The plan to compare with. [adaptive, or else the first]"),
    ] = None,
    measure: Annotated[
        list[str] | None,
        option("--measure", metavar="NAME", help="Of ir-measures. Repeatable. [nDCG@10, R@100, RR@10]"),
    ] = None,
    depth: Annotated[int, option("--depth", help="How many chunks each search returns.", show_default=True)] = 100,
    per_query: Annotated[bool, option("--per-query", help="One row for each plan and question.")] = False,
    recommend: Annotated[
        bool,
        option(
            "--recommend",
            help="Choose by half of the questions, check by the other: fusion, alpha, and what follows.",
        ),
    ] = False,
    stemmers: Annotated[
        str | None,
        option(
            "--stemmers",
            metavar="NAME,…",
            help="Recommend a stemmer, too. Each is tried on a temporary copy of the file, whose words are reindexed.",
        ),
    ] = None,
    chunk_sizes: Annotated[
        str | None,
        option(
            "--chunk-sizes",
            metavar="N,…",
            help="Recommend a chunk size, too. For each a temporary copy of the file is rechunked and embedded, which "
            "takes as long as building it.",
        ),
    ] = None,
    trec: Trec = None,
    form: FormatName = Format.table,
) -> None:
    """Measure how well searches rank what people judged relevant, as a table of plans and measures.

    Each plan is compared with one of them question by question: "real" is a difference that chance would hardly give,
    by a paired randomisation test (p-value of .05 or less).
    """
    if headings == (questions is not None):
        raise typer.BadParameter("Name a file or folder of questions, or give --headings; one of the two.")
    if recommend or stemmers or chunk_sizes:
        if headings or per_query or trec is not None or len(measure or []) > 1:
            raise typer.BadParameter("--recommend takes no --headings, --per-query and --trec, and one --measure.")
        _recommend(questions, db, _plans(plan or []), against, measure, depth, _parts(stemmers), chunk_sizes, form)
        return
    from sqlrag.explore.evaluate import DEFAULT_MEASURES
    from sqlrag.explore.evaluate import evaluate as run

    found = run(
        questions,
        where(db),
        _plans(plan or []),
        measures=measure or DEFAULT_MEASURES,
        against=against,
        depth=depth,
    )
    for notice in found.notices:
        write_message(f"note: {notice}")
    if trec is not None:
        for path in found.write_trec(trec):
            write_message(f"wrote {path}")
    rows = found.per_query() if per_query else found.rows()
    write_rows(rows, list(rows[0]), form, found.table(per_query=per_query))


def _recommend(
    questions: Any,
    db: list[Path],
    plans: dict[str, Any] | None,
    against: str | None,
    measure: list[str] | None,
    depth: int,
    stemmers: list[str],
    chunk_sizes: str | None,
    form: Format,
) -> None:
    sizes = _sizes(chunk_sizes)
    from sqlrag.explore.recommend import recommend

    found = recommend(
        questions,
        where(db),
        plans,
        stemmers=stemmers,
        chunk_sizes=sizes,
        against=against,
        measure=measure[0] if measure else "nDCG@10",
        depth=depth,
    )
    for notice in found.notices:
        write_message(f"note: {notice}")
    if form is Format.json:
        write_json(found.to_dict())
    else:
        write_rows(found.rows(), list(found.rows()[0]), form, str(found))
