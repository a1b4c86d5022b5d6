"""``sqlrag hybrid-query``, ``vector-query`` and ``lexical-query``."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from sqlrag.console.app import command
from sqlrag.console.clock import import_seconds
from sqlrag.console.options import (
    K1,
    NO_FILES,
    B,
    Collection,
    Db,
    Dbs,
    Exact,
    Fields,
    FormatName,
    FusionName,
    HeadingWeight,
    Metadata,
    MinSimilarity,
    Model,
    ModeName,
    SourceDocs,
    Sql,
    TagsAll,
    TagsAny,
    Text,
    Timings,
    TopK,
    metadata_fields,
    option,
)
from sqlrag.console.printing import Format, tell, write, write_json, write_rows
from sqlrag.types import DEFAULT_ALPHA, DEFAULT_FEEDBACK_WEIGHT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from sqlrag.retrieval.queries import Queries
    from sqlrag.retrieval.results import Results
    from sqlrag.retrieval.store import Store

FusionOption = Annotated[FusionName, option("--fusion", help="How both rankings become one.", show_default=True)]
Alpha = Annotated[float, option("--alpha", help="convex: share of the vector score.", show_default=True)]
VectorWeight = Annotated[float, option("--vector-weight", help="weighted: share of the vector leg.", show_default=True)]
RrfK = Annotated[float, option("--rrf-k", help="rrf: its constant.", show_default=True)]
VectorTopK = Annotated[int | None, option("--vector-top-k", help="Candidates of the vector leg. [50]")]
FtsTopK = Annotated[int | None, option("--fts-top-k", help="Candidates of the lexical leg. [50]")]
Feedback = Annotated[
    int, option("--feedback", help="Search twice: so many of the best chunks pull the question's vector.")
]
FeedbackWeight = Annotated[float, option("--feedback-weight", help="Their share in it, 0 to 1.", show_default=True)]
Expansion = Annotated[
    int, option("--expansion", help="Search twice: so many terms of the best chunks are added to the words.")
]
Syntax = Annotated[bool, option("--syntax", help="Quotes mean phrases, a star the beginning of a word.")]
Explain = Annotated[bool, option("--explain", help="Say of each result why it has its rank.")]


@command(
    "hybrid-query",
    "Search by meaning and by words.",
    "sqlrag hybrid-query 'How do I filter by tag?' --db kb.duckdb --top-k 3",
    "sqlrag hybrid-query 'rate limits' --db kb.duckdb --fusion convex --tag api --metadata year=2024 --format json",
    "sqlrag hybrid-query 'rate limits' --db january.duckdb --db february.duckdb",
)
def hybrid_query(
    query_text: Text,
    db: Dbs = NO_FILES,
    top_k: TopK = 5,
    fusion: FusionOption = FusionName.rrf,
    alpha: Alpha = DEFAULT_ALPHA,
    vector_weight: VectorWeight = 0.5,
    rrf_k: RrfK = 60,
    vector_top_k: VectorTopK = None,
    fts_top_k: FtsTopK = None,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    k1: K1 = 1.2,
    b: B = 0.75,
    heading_weight: HeadingWeight = None,
    fields: Fields = None,
    exact: Exact = False,
    min_similarity: MinSimilarity = None,
    feedback: Feedback = 0,
    feedback_weight: FeedbackWeight = DEFAULT_FEEDBACK_WEIGHT,
    expansion: Expansion = 0,
    syntax: Syntax = False,
    source_docs: SourceDocs = False,
    model: Model = None,
    strict: Annotated[bool, option("--strict", help="Fail where one leg cannot answer.")] = False,
    form: FormatName = Format.table,
    sql: Sql = False,
    timings: Timings = False,
    explain: Explain = False,
) -> None:
    """Search by meaning and by words at once, and fuse both rankings."""
    if sql and (min_similarity is not None or vector_top_k != fts_top_k or feedback or expansion or syntax):
        raise typer.BadParameter(
            "The SQL macro hybrid_query has no counterpart of --min-similarity, --feedback, --expansion and --syntax, "
            "nor of different values for --vector-top-k and --fts-top-k. Leave them out, or leave --sql out."
        )

    def ask(store: Store) -> Results:
        return store.hybrid_query(
            query_text,
            **shared(),
            query_vector=_stand_in(store) if sql else None,
            include_source_docs=source_docs,
        )

    def shared() -> dict[str, Any]:
        return {
            "top_k": top_k,
            "fusion": fusion.value,
            "alpha": alpha,
            "vector_weight": vector_weight,
            "rrf_k": rrf_k,
            "vector_top_k": vector_top_k,
            "lexical_top_k": fts_top_k,
            "k1": k1,
            "b": b,
            "heading_weight": heading_weight,
            "fields": [field.value for field in fields] if fields else None,
            "collection": collection or None,
            "tags_any": tags_any or None,
            "tags_all": tags_all or None,
            "metadata": metadata_fields(metadata),
            "model_name": model,
            "exact": exact,
            "min_similarity": min_similarity,
            "feedback": feedback,
            "feedback_weight": feedback_weight,
            "expansion": expansion,
            "syntax": syntax,
            "strict": strict or model is not None,  # a model that is named and unknown is an error, not a notice
        }

    _answer(db, query_text, ask, form, sql=sql, timings=timings, explain=("hybrid", shared()) if explain else None)


@command(
    "vector-query",
    "Search by meaning alone.",
    "sqlrag vector-query 'another program holds my file' --db kb.duckdb --min-similarity 0.3",
)
def vector_query(
    query_text: Text,
    db: Dbs = NO_FILES,
    top_k: TopK = 5,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    exact: Exact = False,
    min_similarity: MinSimilarity = None,
    source_docs: SourceDocs = False,
    model: Model = None,
    form: FormatName = Format.table,
    sql: Sql = False,
    timings: Timings = False,
    explain: Explain = False,
) -> None:
    """Search by meaning alone: the chunks whose vectors are nearest to the question's."""

    def ask(store: Store) -> Results:
        return store.vector_query(
            query_text,
            **shared(),
            query_vector=_stand_in(store) if sql else None,
            include_source_docs=source_docs,
        )

    def shared() -> dict[str, Any]:
        return {
            "top_k": top_k,
            "collection": collection or None,
            "tags_any": tags_any or None,
            "tags_all": tags_all or None,
            "metadata": metadata_fields(metadata),
            "model_name": model,
            "exact": exact,
            "min_similarity": min_similarity,
        }

    _answer(db, query_text, ask, form, sql=sql, timings=timings, explain=("vector", shared()) if explain else None)


@command(
    "lexical-query",
    "Search by words alone (BM25).",
    "sqlrag lexical-query 'StoreLockedError PID' --db kb.duckdb --all-words",
)
def lexical_query(
    query_text: Text,
    db: Dbs = NO_FILES,
    top_k: TopK = 5,
    all_words: Annotated[bool, option("--all-words", help="Only chunks that hold every word.")] = False,
    plain: Annotated[bool, option("--plain", help="Quotes and stars are only punctuation.")] = False,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    k1: K1 = 1.2,
    b: B = 0.75,
    heading_weight: HeadingWeight = None,
    fields: Fields = None,
    source_docs: SourceDocs = False,
    form: FormatName = Format.table,
    sql: Sql = False,
    timings: Timings = False,
    explain: Explain = False,
) -> None:
    """Search by words alone, ranked by BM25. No embedding model is needed."""

    def ask(store: Store) -> Results:
        return store.lexical_query(query_text, **shared(), include_source_docs=source_docs)

    def shared() -> dict[str, Any]:
        return {
            "top_k": top_k,
            "k1": k1,
            "b": b,
            "heading_weight": heading_weight,
            "fields": [field.value for field in fields] if fields else None,
            "conjunctive": all_words,
            "syntax": not plain,
            "collection": collection or None,
            "tags_any": tags_any or None,
            "tags_all": tags_all or None,
            "metadata": metadata_fields(metadata),
        }

    _answer(db, query_text, ask, form, sql=sql, timings=timings, explain=("lexical", shared()) if explain else None)


@command(
    "explain",
    "Say why a chunk has its rank.",
    "sqlrag explain 'How do I filter by tag?' guides/filters.md#2 --db kb.duckdb",
)
def explain(
    query_text: Text,
    node_id: Annotated[str, typer.Argument(metavar="NODE_ID", help="The chunk, found or not.", show_default=False)],
    db: Db,
    mode: Annotated[ModeName, option("--mode", help="Which search.", show_default=True)] = ModeName.hybrid,
    top_k: TopK = 5,
    fusion: FusionOption = FusionName.rrf,
    alpha: Alpha = DEFAULT_ALPHA,
    vector_weight: VectorWeight = 0.5,
    rrf_k: RrfK = 60,
    vector_top_k: VectorTopK = None,
    fts_top_k: FtsTopK = None,
    collection: Collection = None,
    tags_any: TagsAny = None,
    tags_all: TagsAll = None,
    metadata: Metadata = None,
    k1: K1 = 1.2,
    b: B = 0.75,
    heading_weight: HeadingWeight = None,
    fields: Fields = None,
    exact: Exact = False,
    min_similarity: MinSimilarity = None,
    feedback: Feedback = 0,
    feedback_weight: FeedbackWeight = DEFAULT_FEEDBACK_WEIGHT,
    expansion: Expansion = 0,
    syntax: Annotated[
        bool | None,
        option("--syntax/--plain", help="Quotes and stars have a meaning, or none. [--plain; lexical: --syntax]"),
    ] = None,
    all_words: Annotated[bool, option("--all-words", help="lexical: only chunks that hold every word.")] = False,
    form: FormatName = Format.table,
) -> None:
    """Take the score of a chunk apart: ranks, cosine, and what each word adds; or say why it was not found."""
    from sqlrag.retrieval.explanation import TermPart
    from sqlrag.retrieval.store import Store

    with Store(db) as store:
        told = store.explain(
            query_text,
            node_id,
            mode=mode.value,
            top_k=top_k,
            fusion=fusion.value,
            alpha=alpha,
            vector_weight=vector_weight,
            rrf_k=rrf_k,
            vector_top_k=vector_top_k,
            lexical_top_k=fts_top_k,
            k1=k1,
            b=b,
            heading_weight=heading_weight,
            fields=[field.value for field in fields] if fields else None,
            collection=collection or None,
            tags_any=tags_any or None,
            tags_all=tags_all or None,
            metadata=metadata_fields(metadata),
            exact=exact,
            min_similarity=min_similarity,
            feedback=feedback,
            feedback_weight=feedback_weight,
            expansion=expansion,
            syntax=syntax,
            conjunctive=all_words,
        )
    for notice in told.notices:
        tell(f"note: {notice}")
    if form is Format.json:
        write_json(told.to_dict())
    else:
        terms = told.to_dict()["lexical"]["terms"] if told.lexical else []
        write_rows(terms, list(TermPart.__dataclass_fields__), form, str(told))


def _answer(
    db: list[Path],
    query_text: str,
    ask: Callable[[Any], Results],
    form: Format,
    *,
    sql: bool,
    timings: bool,
    explain: tuple[Literal["hybrid", "vector", "lexical"], dict[str, Any]] | None,
) -> None:
    """Open the file or files, ask, and write the results or their SQL; ``explain`` is how they are to be explained."""
    if explain and sql:
        raise typer.BadParameter("--sql searches nothing that --explain could explain. Leave one of both out.")
    if len(db) > 1 and (sql or explain):
        raise typer.BadParameter("--sql and --explain take one file. Leave them out, or make one file: sqlrag merge")
    began = time.perf_counter()
    from sqlrag.retrieval.querying import opened_to_read
    from sqlrag.retrieval.results import RESULT_KEYS, format_results

    imported = time.perf_counter()
    with opened_to_read(db if len(db) > 1 else db[0]) as store:
        opened = time.perf_counter()
        results = ask(store)
        known = "query_embeddings" not in results.sql or _is_embedded(store, query_text)
        told = [store.explain(query_text, row["node_id"], mode=explain[0], **explain[1]) for row in results if explain]
    for notice in results.notices if not sql else ():  # which came from a stand-in for the question's vector
        tell(f"note: {notice}")
    if timings:
        for leg, method in results.methods.items():
            tell(f"{leg} leg: {method}")
        tell(_timings(import_seconds() + imported - began, opened - imported, results.timings))
    if not sql:
        columns, rows, text = RESULT_KEYS, list(results), format_results(list(results), query_text)
        if results.files:
            text = "\n".join([text, *(f"{node_id} is from {path}" for node_id, path in results.files.items())])
        if explain:
            columns = (*columns, "explanation")
            rows = [row | {"explanation": one.to_dict()} for row, one in zip(rows, told, strict=True)]
            text = "\n\n".join([text, *map(str, told)])
        write_rows(rows, columns, form, text)
        return
    write(results.sql)
    if not known:
        embed = f"sqlrag embed {shlex.quote(query_text)} --db {shlex.quote(str(db[0]))}"
        tell(f"note: the statement needs the question's vector, which is not in the file yet: {embed}")


def _timings(imports: float, opening: float, measured: Mapping[str, float]) -> str:
    """Say where the time of a query went; the legs run side by side, so their times may add up to more."""

    def said(stages: Mapping[str, float]) -> str:
        return ", ".join(f"{stage} {seconds * 1000:.1f} ms" for stage, seconds in stages.items())

    model = {stage: measured.get(stage, 0.0) for stage in ("load", "embed")}
    search = measured["total"] - sum(model.values())
    parts = {stage: seconds for stage, seconds in measured.items() if stage not in {*model, "total"}}
    stages = said({"import": imports, "open": opening, **model, "search": search})
    return f"timings: {stages} ({said(parts)}), total {(imports + opening + measured['total']) * 1000:.1f} ms"


def _is_embedded(store: Queries, query_text: str) -> bool:
    found = store.cursor().execute("SELECT 1 FROM query_embeddings WHERE query_text = $1", [query_text]).fetchone()
    return found is not None


def _stand_in(store: Store) -> list[float]:
    """Return some vector: the SQL of a query does not depend on it, so no model has to be loaded."""
    return [1.0] * store.dimensions
