"""Evaluates searches by questions with relevance judgements: reads these, runs the searches, computes measures."""

from __future__ import annotations

import html
import inspect
import json
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

from sqlrag.arguments import choice, counted, items, mapping, not_blank, path, shown, whole
from sqlrag.engines.duckdb.failures import public
from sqlrag.errors import InputError, MissingExtraError, NotFoundError
from sqlrag.ingest.run import bars
from sqlrag.normalize import clean_name
from sqlrag.ranking.results import frames
from sqlrag.search.open import open_store
from sqlrag.types import Candidate, RetrievePlan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import pandas as pd

    from sqlrag.search.open import AnyStores
    from sqlrag.search.store import Store
    from sqlrag.types import Progress

_KEYS = {"id": ("id", "_id", "query_id"), "query": ("query", "text", "query_text", "question")}

_GRADE = re.compile(r"-?[0-9]{1,4}(\.0+)?")

_EXAMPLE = '[{"query": "How do I filter?", "relevant": ["guides/filters.md"]}]'


@dataclass(frozen=True)
class Question:
    """A question, the grade of each document or chunk that was judged for it, and its vector if given."""

    query_id: str
    text: str
    relevant: dict[str, int]
    query_vector: Any = None


Search: TypeAlias = "Callable[[Any, Question, int], list[tuple[str, str]]]"


def read_questions(questions: object) -> list[Question]:
    """Return the questions with a judgement, in their order.

    Raises
    ------
    InputError
        There is none, an id occurs twice, or the form is not that of :func:`sqlrag.evaluate`.
    NotFoundError
        A file does not exist.
    """
    if isinstance(questions, (str, os.PathLike)):
        path = Path(questions)
        if not path.exists():
            raise NotFoundError(f"There is no file or folder {path}.")
        judged = _of_jsonl(path) if path.suffix == ".jsonl" else _of_beir(path)
    else:
        judged = [
            _question(one, number, "questions") for number, one in enumerate(items("questions", questions, _EXAMPLE))
        ]
    seen: set[str] = set()
    for one in judged:
        if one.query_id in seen:
            raise InputError(f"There are two questions with the id {one.query_id!r}.")
        seen.add(one.query_id)
    judged = [
        replace(one, relevant={clean_name(name): grade for name, grade in one.relevant.items()})
        for one in judged
        if any(grade > 0 for grade in one.relevant.values())
    ]
    if not judged:
        raise InputError("No question has a relevant document or chunk.")
    return judged


def _of_jsonl(path: Path) -> list[Question]:
    return [_question(row, number, str(path)) for number, row in enumerate(_json_lines(path))]


def _of_beir(path: Path) -> list[Question]:
    """Read ``queries.jsonl`` and a table of judgements: a folder's ``qrels/test.tsv``, or the table at the path."""
    if path.is_dir():
        candidates = [path / "qrels" / "test.tsv", path / "qrels.tsv"]
        table = next((one for one in candidates if one.exists()), candidates[0])
    else:
        table = path
    places = [folder / "queries.jsonl" for folder in (table.parent, table.parent.parent)]
    queries = next((one for one in places if one.exists()), None)
    if not table.exists() or queries is None:
        raise NotFoundError(f"{path} is not in BEIR layout: it needs queries.jsonl and qrels/test.tsv.")
    texts = {str(row.get("_id")): row.get("text") for row in _json_lines(queries)}
    judged: dict[str, dict[str, int]] = {}
    for line, text in _lines(table):
        row = text.split("\t")
        if line == 1 and row[0] in ("query-id", "query_id"):
            continue
        if len(row) < 3 or not _GRADE.fullmatch(row[-1]):
            raise InputError(f"{table}, line {line}: expected query-id, corpus-id and score, separated by tabs.")
        # TREC's own tables have four columns; the second is an iteration.
        judged.setdefault(row[0], {})[row[-2]] = int(float(row[-1]))
    missing = sorted(set(judged) - set(texts))
    if missing:
        raise InputError(f"{queries} has no question {missing[0]!r}, which {table} judges.")
    return [
        Question(query_id, not_blank(f"The question {query_id}", texts[query_id]), relevant)
        for query_id, relevant in judged.items()
    ]


def _json_lines(path: Path) -> Iterator[Mapping[str, Any]]:
    for line, text in _lines(path):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {line} is not JSON: {error}") from error
        if not isinstance(row, Mapping):
            raise InputError(f"{path}, line {line} is not a JSON object.")
        yield row


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines of a file with their numbers."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            yield from ((line, text.rstrip("\n")) for line, text in enumerate(file, start=1) if text.strip())
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read as UTF-8 text: {error}") from error


def _question(row: Any, number: int, where: str) -> Question:
    place = f"{where}[{number}]"
    if not isinstance(row, Mapping):
        raise InputError(f"{place} must be a dict, as in {_EXAMPLE}, not {shown(row)}.")
    found = {kind: next((row[key] for key in keys if key in row), None) for kind, keys in _KEYS.items()}
    relevant = row.get("relevant")
    if isinstance(relevant, str):
        relevant = [relevant]
    if not isinstance(relevant, Mapping):
        relevant = dict.fromkeys(items(f"{place}['relevant']", relevant, "['guides/filters.md']"), 1)
    grades = {
        not_blank(f"An id in {place}['relevant']", key): whole(f"{place}['relevant'][{key!r}]", grade, -10, 1000)
        for key, grade in relevant.items()
    }
    query_id = str(number + 1) if found["id"] is None else str(found["id"])
    return Question(query_id, not_blank(f"{place}['query']", found["query"]), grades, row.get("query_vector"))


def unit_of(rows: Sequence[tuple[str, str]], judged: Iterable[Question]) -> tuple[str, list[str]]:
    """Return what was judged, "doc_id" or "node_id", and a notice about ids that the store does not have.

    ``rows`` are the ``doc_id`` and ``node_id`` of each chunk.

    Raises
    ------
    InputError
        The store has none of the ids, or some are documents and others chunks.
    """
    ids = {judged_id for one in judged for judged_id in one.relevant}
    known = {unit: ids & {row[place] for row in rows} for place, unit in enumerate(("doc_id", "node_id"))}
    unknown = sorted(ids - known["doc_id"] - known["node_id"])
    some = ", ".join(map(repr, unknown[:3]))
    if len(unknown) == len(ids):
        raise InputError(f"The file has no document and no chunk of the ids in the judgements, such as {some}.")
    documents = sorted(known["doc_id"] - known["node_id"])
    chunks = sorted(known["node_id"] - known["doc_id"])
    if documents and chunks:
        raise InputError(
            f"Judgements are of documents ({documents[0]!r}) and of chunks ({chunks[0]!r}); use only one of these."
        )
    notice = f"The file has no {some}{' …' if len(unknown) > 3 else ''}: {counted(len(unknown), 'judged id')} of "
    notice += f"{len(ids):,} cannot be found, and count as missed."
    return "node_id" if chunks else "doc_id", [notice] if unknown else []


PRESETS: dict[str, dict[str, Any]] = {
    "lexical": {"mode": "lexical", "syntax": False},
    "vector": {"mode": "vector"},
    "rrf": {"fusion": "rrf"},
    "weighted": {"fusion": "weighted"},
    "convex": {"fusion": "convex"},
    "adaptive": {"fusion": "adaptive"},
}

_SET_BY_EVALUATE = {"self", "query_text", "top_k", "query_vector", "include_source_docs", "model_name"}


def searches(plans: object) -> dict[str, Search]:
    """Return the search of each plan by its name; see :func:`sqlrag.evaluate`."""
    if plans is None:
        plans = PRESETS
    if isinstance(plans, Sequence) and not isinstance(plans, str):
        names = items("plans", plans, "['lexical', 'rrf']")
        plans = {name: PRESETS[choice("Each of plans", name, PRESETS)] for name in names}
    named = mapping("plans", plans)
    if not named:
        raise InputError(f"plans is empty. Name some of {', '.join(PRESETS)}, or pass options.")
    return {not_blank("The name of a plan", name): _search(name, plan) for name, plan in named.items()}


def _search(name: str, plan: Any) -> Search:
    if isinstance(plan, RetrievePlan):
        return partial(_by_plan, plan)
    if callable(plan):
        return partial(_by_function, plan)
    if not isinstance(plan, Mapping):
        raise InputError(
            f"The plan {name!r} must be a dict of options, a sqlrag.RetrievePlan or a function of a store and a "
            f"question, not {shown(plan)}."
        )
    options = mapping(f"The plan {name!r}", plan)
    mode = choice(f"The mode of the plan {name!r}", options.pop("mode", "hybrid"), ("hybrid", "vector", "lexical"))
    from sqlrag.search.queries import Queries

    valid = sorted(set(inspect.signature(getattr(Queries, f"{mode}_query")).parameters) - _SET_BY_EVALUATE)
    unknown = sorted(set(options) - set(valid))
    if unknown:
        raise InputError(f"The plan {name!r} has {', '.join(unknown)}; a {mode} search takes {', '.join(valid)}.")
    return partial(_by_options, mode, options)


def _by_options(
    mode: str, options: Mapping[str, Any], store: Any, question: Question, depth: int
) -> list[tuple[str, str]]:
    more: dict[str, Any] = {"top_k": depth, **options}
    if mode != "lexical":
        more["query_vector"] = question.query_vector
    found = getattr(store, f"{mode}_query")(question.text, **more)
    return [(row["doc_id"], row["node_id"]) for row in found]


def _by_plan(plan: RetrievePlan, store: Any, question: Question, depth: int) -> list[tuple[str, str]]:
    deep = replace(plan, k=max(plan.k, depth))
    found = store.retrieve(question.text, deep, query_vector=question.query_vector)
    return [(one.doc_id, one.node_id) for one in found]


def _by_function(
    function: Callable[[Any, str], Sequence[Any]], store: Any, question: Question, depth: int
) -> list[tuple[str, str]]:
    found = function(store, question.text)
    return [
        (one.doc_id, one.node_id) if isinstance(one, Candidate) else (one["doc_id"], one["node_id"])
        for one in list(found)[:depth]
    ]


# A question must not control the terminal or break a row.
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


class Comparison(NamedTuple):
    """Two plans compared question by question: how many each wins, the mean difference, and its significance.

    ``p_value`` is that of the two-sided sign test over the questions without a tie, 0..1.
    """

    wins: int
    losses: int
    ties: int
    difference: float
    p_value: float


class Evaluation:
    """The values of measures for plans and questions, as :func:`sqlrag.evaluate` returns them.

    Parameters
    ----------
    measures
        Their names, in the order of the columns.
    unit
        What was judged: "doc_id" or "node_id".
    questions
        Those with a judgement, in their order.
    scores
        Plan → ``query_id`` → measure → value.
    ranked
        Plan → ``query_id`` → the ids that the search found, best first.
    notices
        Remarks for the reader, such as judged ids that the store does not have.
    """

    def __init__(
        self,
        *,
        measures: Sequence[str],
        unit: str,
        questions: Sequence[Question],
        scores: Mapping[str, Mapping[str, Mapping[str, float]]],
        ranked: Mapping[str, Mapping[str, Sequence[str]]],
        notices: Sequence[str] = (),
    ) -> None:
        self.measures = tuple(measures)
        self.unit = unit
        self.questions = tuple(questions)
        self.scores = scores
        self.ranked = ranked
        self.notices = list(notices)

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """The mean of each measure over all questions, by plan."""
        return {
            plan: {name: math.fsum(one[name] for one in of.values()) / len(of) for name in self.measures}
            for plan, of in self.scores.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per plan: ``plan``, ``questions`` and the mean of each measure."""
        return [{"plan": plan, "questions": len(self.questions), **of} for plan, of in self.means.items()]

    def per_query(self) -> list[dict[str, Any]]:
        """Return one dict per plan and question: ``plan``, ``query_id``, ``query_text`` and each measure."""
        return [
            {"plan": plan, "query_id": one.query_id, "query_text": one.text, **of[one.query_id]}
            for plan, of in self.scores.items()
            for one in self.questions
        ]

    def df(self, *, per_query: bool = False) -> pd.DataFrame:
        """Return :meth:`rows`, or :meth:`per_query`, as a pandas DataFrame.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        pandas = frames("pandas", "Evaluation.df()")
        frame: pd.DataFrame = pandas.DataFrame(self.per_query() if per_query else self.rows())
        return frame

    def compare(self, plan: str, other: str, measure: str | None = None) -> Comparison:
        """Compare two plans question by question, by the first measure unless another is named.

        Raises
        ------
        InputError
            There is no such plan or measure.
        """
        name = self._measure(measure)
        one, two = (self.scores[choice("plan", given, self.scores)] for given in (plan, other))
        gaps = [round(one[query_id][name] - two[query_id][name], 9) for query_id in one]
        wins, losses = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
        return Comparison(
            wins, losses, len(gaps) - wins - losses, math.fsum(gaps) / len(gaps), _sign_test(wins, losses)
        )

    def worst(self, plan: str, n: int = 5, measure: str | None = None) -> list[dict[str, Any]]:
        """Return the questions with the lowest values of a plan, lowest first; ties in the order of the questions.

        Each has ``query_id``, ``query_text``, the value, and what was ``relevant`` and ``found`` (the best five).
        """
        return self._ordered(plan, n, measure, 1)

    def best(self, plan: str, n: int = 5, measure: str | None = None) -> list[dict[str, Any]]:
        """Return the questions with the highest values of a plan, as :meth:`worst` does."""
        return self._ordered(plan, n, measure, -1)

    def write_trec(self, folder: str | os.PathLike[str]) -> list[Path]:
        """Write ``qrels.txt`` and one ``PLAN.run`` per plan in the format of trec_eval, and return their paths.

        Blanks in ids are written as in URLs (``%20``), since the format does not allow them. Files of these names are
        replaced.
        """
        target = Path(path("folder", folder))
        target.mkdir(parents=True, exist_ok=True)
        qrels = [
            f"{_field(one.query_id)} 0 {_field(judged)} {grade}"
            for one in self.questions
            for judged, grade in one.relevant.items()
        ]
        files = {"qrels.txt": qrels}
        for plan, runs in self.ranked.items():
            files[f"{quote(plan, safe=' ')}.run"] = [
                f"{_field(query_id)} Q0 {_field(found)} {rank} {1 / rank:.9f} {_field(plan)}"
                for query_id, ids in runs.items()
                for rank, found in enumerate(ids, start=1)
            ]
        for name, lines in files.items():
            (target / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        return [target / name for name in files]

    def table(self, *, per_query: bool = False) -> str:
        """Return :meth:`rows`, or :meth:`per_query`, in columns for a terminal."""
        rows = self._table(per_query=per_query)
        texts = len(rows[0]) - len(self.measures)  # texts are left-aligned, values right-aligned
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        return "\n".join(
            "  ".join(
                cell.ljust(width) if at < texts else cell.rjust(width)
                for at, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in rows
        )

    def __repr__(self) -> str:
        return "\n".join([self.table(), *(f"Note: {notice}" for notice in self.notices)])

    def _repr_html_(self) -> str:
        head, *rows = self._table()
        best = [max((row[at] for row in rows), default="") for at in range(len(head))]

        def cells(row: list[str]) -> str:
            marked = (
                ("b" if at > 1 and cell == best[at] else "span", html.escape(cell)) for at, cell in enumerate(row)
            )
            return "".join(f"<td><{tag}>{cell}</{tag}></td>" for tag, cell in marked)

        body = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
        titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
        notes = "".join(f"<p><em>Note: {html.escape(notice)}</em></p>" for notice in self.notices)
        return f"<div>{notes}<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"

    def _table(self, *, per_query: bool = False) -> list[list[str]]:
        """Return the cells, the header row first."""
        rows = self.per_query() if per_query else self.rows()
        named = [name for name in rows[0] if name not in self.measures]
        cells = [
            [_UNPRINTABLE.sub(" ", str(row[name])) for name in named] + [f"{row[name]:.4f}" for name in self.measures]
            for row in rows
        ]
        return [[*named, *self.measures], *cells]

    def _measure(self, measure: str | None) -> str:
        return self.measures[0] if measure is None else choice("measure", measure, self.measures)

    def _ordered(self, plan: str, n: int, measure: str | None, sign: int) -> list[dict[str, Any]]:
        name, of = self._measure(measure), self.scores[choice("plan", plan, self.scores)]
        ordered = sorted(self.questions, key=lambda one: sign * of[one.query_id][name])
        return [
            {
                "query_id": one.query_id,
                "query_text": one.text,
                name: of[one.query_id][name],
                "relevant": dict(one.relevant),
                "found": list(self.ranked[plan][one.query_id][:5]),
            }
            for one in ordered[: whole("n", n, 1)]
        ]


def _sign_test(wins: int, losses: int) -> float:
    """Return the exact two-sided probability that a fair coin deviates at least as far."""
    total, fewer = wins + losses, min(wins, losses)
    return min(1.0, float(2 * sum(math.comb(total, k) for k in range(fewer + 1)) / 2**total))


def _field(text: str) -> str:
    return re.sub(r"\s", lambda blank: quote(blank[0]), text)


DEFAULT_MEASURES = ("nDCG@10", "R@100", "RR@10")


@public
def evaluate(
    questions: str | os.PathLike[str] | Sequence[Mapping[str, Any]],
    db_path: AnyStores,
    plans: Mapping[str, Mapping[str, Any] | RetrievePlan | Callable[[Store, str], Sequence[Any]]]
    | Sequence[str]
    | None = None,
    *,
    measures: Sequence[str] = DEFAULT_MEASURES,
    depth: int = 100,
    progress: Progress = "auto",
) -> Evaluation:
    """Measure how well searches rank what people judged relevant, question by question.

    Parameters
    ----------
    questions
        A list of dicts with ``query`` and ``relevant``: ids, or a dict of ids to grades (integers, 0 is not
        relevant). They may have an ``id``, else they are numbered from 1, and a ``query_vector``. Or a ``.jsonl`` file
        of such objects, a folder in BEIR layout (``queries.jsonl``, ``qrels/test.tsv``), or the path of its qrels.
    db_path
        The file or files, as in :func:`hybrid_query`.
    plans
        The searches by name. Each is a dict of the options of :func:`hybrid_query` (with ``mode`` "vector" or
        "lexical" those of :func:`vector_query` or :func:`lexical_query`), a :class:`RetrievePlan`, or a function of a
        store and a question that returns results or candidates. A list names some of "lexical", "vector", "rrf",
        "weighted" and "convex"; None is all of these.
    measures
        Names of ir-measures, such as "nDCG@10", "R@100", "RR@10", "AP" or "Success@5".
    depth
        How many chunks each search returns, 1 or more; each leg returns as many candidates. Measures use no more.
    progress
        A bar: "auto" in a terminal or notebook, "on" always, "off" never.

    Returns
    -------
    Evaluation
        The means of each plan as a table, and every question's values. Judgements name documents by ``doc_id`` or
        chunks by ``node_id``; a document has the rank of its best chunk. Questions without anything relevant are
        left out. Ids that the store does not have are reported in ``notices`` and count as missed.

    Raises
    ------
    MissingExtraError
        ir-measures is not installed.
    InputError
        The questions, plans or measures are not valid, a question's id occurs twice, or the store has none of the
        judged ids.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        A store does not exist or cannot be used.
    ModelMismatchError, ModelUnavailableError, ProviderError
        As for :func:`vector_query`.

    Examples
    --------
    >>> evaluate([{"query": "fill a pool", "relevant": ["pools.md"]}], "kb.duckdb", ["rrf"])  # doctest: +SKIP
    """
    wanted = _parsed(measures)
    judged = read_questions(questions)
    named = searches(plans)
    depth = whole("depth", depth, 1)
    bar_off = bars(True, choice("progress", progress, ("auto", "on", "off")))  # type: ignore[arg-type]
    from tqdm.auto import tqdm

    with open_store(db_path) as store:
        unit, notices = unit_of(store.select("evaluating/known_ids"), judged)
        ranked: dict[str, dict[str, list[str]]] = {name: {} for name in named}
        with tqdm(total=len(judged), desc="questions", unit="question", disable=bar_off, leave=False) as bar:
            for question in judged:  # the outer loop, so that a question is embedded once for all plans
                for name, search in named.items():
                    found = search(store, question, depth)
                    ranked[name][question.query_id] = list(dict.fromkeys(pair[unit == "node_id"] for pair in found))
                bar.update()
    scores = {name: _calculated(wanted, judged, runs) for name, runs in ranked.items()}
    return Evaluation(
        measures=tuple(wanted), unit=unit, questions=tuple(judged), scores=scores, ranked=ranked, notices=notices
    )


def _parsed(measures: Sequence[str]) -> dict[str, Any]:
    try:
        import ir_measures
    except ImportError as error:
        raise MissingExtraError("evaluate()", "explore") from error
    parsed = {}
    names = items("measures", measures, str(list(DEFAULT_MEASURES)))
    for name in (not_blank("Each of measures", name) for name in names):
        try:
            measure = parsed[name] = ir_measures.parse_measure(name)
            # trec_eval exits the process at a cutoff below 1.
            if int(measure.params.get("cutoff", 1)) < 1:
                raise ValueError(name)
        except Exception as error:
            raise InputError(
                f"There is no measure {name!r}; use a name of ir-measures, such as nDCG@10 or R@100."
            ) from error
    if not parsed:
        raise InputError("measures is empty. Name one, such as nDCG@10.")
    return parsed


def _calculated(
    measures: Mapping[str, Any], judged: Sequence[Question], ranked: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Return the values by question and measure. Scores are negative ranks, to keep the order of the search."""
    import ir_measures

    qrels = {question.query_id: question.relevant for question in judged}
    run = {query_id: {found: -float(rank) for rank, found in enumerate(ids)} for query_id, ids in ranked.items()}
    values = {query_id: dict.fromkeys(measures, 0.0) for query_id in qrels}
    names = {measure: name for name, measure in measures.items()}
    for metric in ir_measures.iter_calc(list(measures.values()), qrels, run):
        values[metric.query_id][names[metric.measure]] = float(metric.value)
    return values
