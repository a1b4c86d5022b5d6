"""Evaluates searches by questions with relevance judgements: runs them, computes measures, compares plans."""

from __future__ import annotations

import difflib
import html
import inspect
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

import numpy as np

from sqlrag.arguments import choice, counted, items, mapping, not_blank, path, shown, whole
from sqlrag.cancellation import checkpoint
from sqlrag.engines.duckdb.failures import public
from sqlrag.errors import InputError, MissingExtraError
from sqlrag.explore.questions import heading_questions, read_questions, unit_of
from sqlrag.progress import Bar, bar_is_off
from sqlrag.ranking.results import frames
from sqlrag.search.open import open_store
from sqlrag.types import Candidate, RetrievePlan

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection

    import pandas as pd

    from sqlrag.explore.questions import Question
    from sqlrag.search.open import AnyStores
    from sqlrag.search.store import Store
    from sqlrag.types import Progress

Search: TypeAlias = "Callable[[Any, Question, int], list[tuple[str, str]]]"


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
        return partial(_by_function, name, plan)
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
    if mode == "hybrid":
        more = {"strict": True, **more}  # half of a search must not be measured as the whole
    if mode != "lexical":
        more["query_vector"] = question.query_vector
    found = getattr(store, f"{mode}_query")(question.text, **more)
    return [(row["doc_id"], row["node_id"]) for row in found]


def _by_plan(plan: RetrievePlan, store: Any, question: Question, depth: int) -> list[tuple[str, str]]:
    deep = replace(plan, k=max(plan.k, depth))
    found = store.retrieve(question.text, deep, query_vector=question.query_vector)
    return [(one.doc_id, one.node_id) for one in found]


def _by_function(
    name: str, function: Callable[[Any, str], Sequence[Any]], store: Any, question: Question, depth: int
) -> list[tuple[str, str]]:
    found = function(store, question.text)
    try:
        return [
            (one.doc_id, one.node_id) if isinstance(one, Candidate) else (one["doc_id"], one["node_id"])
            for one in list(found)[:depth]
        ]
    except (TypeError, KeyError) as error:
        raise InputError(
            f"The plan {name!r} must return candidates or results with doc_id and node_id, not {shown(found)}."
        ) from error


_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


SIGNIFICANT = 0.05

LEAST = 6  # questions: 2 / 2**5 > SIGNIFICANT >= 2 / 2**6

_DRAWS = 10_000


class Comparison(NamedTuple):
    """Two plans compared question by question: how many each wins, the mean difference, and its significance.

    ``p_value`` is that of the paired randomisation test, 0..1: if both plans were equally good, each question's
    difference could as well have the other sign. It is the share of all ``2**n`` ways to choose the signs, ``n`` being
    the number of questions without a tie, for which the sum of the differences is at least as far from 0. From 14 such
    questions on it is ``(1 + hits) / (1 + 10,000)`` over 10,000 ways that are drawn, always the same ones.

    References
    ----------
    Smucker, Allan, Carterette: A Comparison of Statistical Significance Tests for Information Retrieval Evaluation,
    CIKM 2007, section 3.3. Davison, Hinkley: Bootstrap Methods and their Application, 1997, section 4.2, for the 1 that
    is added.
    """

    wins: int
    losses: int
    ties: int
    difference: float
    p_value: float

    @property
    def verdict(self) -> str:
        """What the difference is: "real", "noise", or "too few questions" where no outcome could be called real.

        Real is a ``p_value`` of .05 or less. It takes 6 questions without a tie: of 5 that are all won, it is .0625.
        """
        if self.p_value <= SIGNIFICANT:
            return "real"
        return "noise" if self.wins + self.losses >= LEAST else "too few questions"


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
    against
        The plan that the others are compared with; None: the first.
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
        against: str | None = None,
    ) -> None:
        self.measures = tuple(measures)
        self.unit = unit
        self.questions = tuple(questions)
        self.scores = scores
        self.ranked = ranked
        self.notices = list(notices)
        self.against = next(iter(scores)) if against is None else against

    @property
    def means(self) -> dict[str, dict[str, float]]:
        """The mean of each measure over all questions, by plan."""
        return {
            plan: {name: math.fsum(one[name] for one in of.values()) / len(of) for name in self.measures}
            for plan, of in self.scores.items()
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per plan: ``plan``, ``questions`` and the mean of each measure.

        Of two plans or more each also has its :class:`Comparison` with the plan ``against`` by the first measure:
        ``difference``, ``wins``, ``losses``, ``ties``, ``p_value`` and ``verdict``, None for that plan itself.
        """
        rows: list[dict[str, Any]] = [
            {"plan": plan, "questions": len(self.questions), **of} for plan, of in self.means.items()
        ]
        for row in rows if len(rows) > 1 else ():
            compared = None if row["plan"] == self.against else self.compare(row["plan"], self.against)
            row |= {name: compared and getattr(compared, name) for name in COMPARED}
        return rows

    def per_query(self) -> list[dict[str, Any]]:
        """Return one dict per plan and question: ``plan``, ``query_id``, ``query_text`` and each measure.

        Of two plans or more each also has the ``difference`` from the plan ``against`` by the first measure, and the
        ``outcome``: "won", "lost" or "tied"; None for that plan itself.
        """
        rows: list[dict[str, Any]] = [
            {"plan": plan, "query_id": one.query_id, "query_text": one.text, **of[one.query_id]}
            for plan, of in self.scores.items()
            for one in self.questions
        ]
        for row in rows if len(self.scores) > 1 else ():
            gap = self._gap(row["plan"], self.against, row["query_id"], self.measures[0])
            itself = row["plan"] == self.against
            row["difference"] = None if itself else gap
            row["outcome"] = None if itself else "won" if gap > 0 else "lost" if gap < 0 else "tied"
        return rows

    def df(self, *, per_query: bool = False) -> pd.DataFrame:
        """Return :meth:`rows`, or :meth:`per_query`, as a pandas DataFrame.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        pandas = frames("pandas", "Evaluation.df()")
        frame: pd.DataFrame = pandas.DataFrame(self.per_query() if per_query else self.rows())
        # Whole numbers, one of which is missing.
        return frame.astype({name: "Int64" for name in Comparison._fields[:3] if name in frame})

    def compare(self, plan: str, other: str, measure: str | None = None) -> Comparison:
        """Compare two plans question by question, by the first measure unless another is named.

        Raises
        ------
        InputError
            There is no such plan or measure.
        """
        name = self._measure(measure)
        for given in (plan, other):
            choice("plan", given, self.scores)
        gaps = [self._gap(plan, other, one.query_id, name) for one in self.questions]
        wins, losses = sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)
        difference = math.fsum(gaps) / len(gaps)
        return Comparison(wins, losses, len(gaps) - wins - losses, difference, _randomisation_test(gaps))

    def sentence(self, plan: str, other: str | None = None, measure: str | None = None) -> str:
        """Return :meth:`compare` in words, with what the difference is worth; ``other`` is by default ``against``.

        Raises
        ------
        InputError
            There is no such plan or measure.
        """
        name, other = self._measure(measure), self.against if other is None else other
        return in_words(self, name, self.compare(plan, other, name), {plan: plan, other: other})

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
        return in_columns(*self._table(per_query=per_query))

    def __repr__(self) -> str:
        return "\n".join([self.table(), *(f"Note: {notice}" for notice in self.notices)])

    def _repr_html_(self) -> str:
        head, rows = self._table()
        best = [max((row[at] for row in rows), default="") for at in range(len(head))]

        def cells(row: list[str]) -> str:
            marked = (
                ("b" if head[at] in self.measures and cell == best[at] else "span", html.escape(cell))
                for at, cell in enumerate(row)
            )
            return "".join(f"<td><{tag}>{cell}</{tag}></td>" for tag, cell in marked)

        body = "".join(f"<tr>{cells(row)}</tr>" for row in rows)
        titles = "".join(f"<th>{html.escape(title)}</th>" for title in head)
        notes = "".join(f"<p><em>Note: {html.escape(notice)}</em></p>" for notice in self.notices)
        return f"<div>{notes}<table><thead><tr>{titles}</tr></thead><tbody>{body}</tbody></table></div>"

    def _table(self, *, per_query: bool = False) -> tuple[list[str], list[list[str]]]:
        """Return the names of the columns and the cells of the rows."""
        rows = self.per_query() if per_query else self.rows()
        return list(rows[0]), [[cell(name, value) for name, value in row.items()] for row in rows]

    def _gap(self, plan: str, other: str, query_id: str, name: str) -> float:
        return round(self.scores[plan][query_id][name] - self.scores[other][query_id][name], 9)

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


COMPARED = (*Comparison._fields[3:4], *Comparison._fields[:3], "p_value", "verdict")

_TO_THE_LEFT = ("plan", "questions", "query_id", "query_text")


def cell(name: str, value: object) -> str:
    """Return a value for a table of people; a text must not control the terminal or break a row."""
    if isinstance(value, float):
        return f"{value:+.4f}" if name == "difference" else f"{value:.4f}"
    return "" if value is None else _UNPRINTABLE.sub(" ", str(value))


def in_columns(head: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str] = _TO_THE_LEFT) -> str:
    """Return a table for a terminal; the columns named in ``left`` are aligned to the left."""
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            text.ljust(width) if name in left else text.rjust(width)
            for name, text, width in zip(head, row, widths, strict=True)
        ).rstrip()
        for row in (head, *rows)
    )


def in_words(evaluation: Evaluation, measure: str, found: Comparison, names: Mapping[str, str]) -> str:
    """Return a comparison as sentences; ``names`` are what the two plans are called."""
    values = ", ".join(f"{name} {evaluation.means[plan][measure]:.4f}" for plan, name in names.items())
    said = {
        "real": f"Chance alone would hardly give that (p = {found.p_value:.4f}).",
        "noise": f"That is noise: chance alone gives it easily (p = {found.p_value:.4f}).",
        "too few questions": f"Too few questions differ to tell; it takes {LEAST} (p = {found.p_value:.4f}).",
    }
    return (
        f"{measure} over {counted(len(evaluation.questions), 'question')}: {values}; {found.difference:+.4f}, "
        f"{found.wins} won, {found.losses} lost, {found.ties} tied. {said[found.verdict]}"
    )


def _randomisation_test(gaps: Sequence[float]) -> float:
    """Return the two-sided probability of a sum as far from 0 if the sign of each gap were chance."""
    # Whole numbers, whose sums are exact, in one order: swapped plans and other orders of questions give the same.
    sizes = np.array(sorted(abs(round(gap * 1e9)) for gap in gaps if gap), dtype=np.float64)
    observed, n = abs(round(math.fsum(gaps) * 1e9)), len(sizes)
    if not n:
        return 1.0

    def as_far(positive: Any) -> int:
        return int(np.sum(np.abs(2 * (positive @ sizes) - sizes.sum()) >= observed))

    if 2**n <= _DRAWS:
        return as_far(np.arange(2**n)[:, None] >> np.arange(n) & 1) / float(2**n)
    drawn, hits, rows = np.random.PCG64(0), 0, 1000
    for _ in range(_DRAWS // rows):
        words = drawn.random_raw(-(-rows * n // 64)).astype("<u8")  # the same bits in every release of numpy
        hits += as_far(np.unpackbits(words.view(np.uint8))[: rows * n].reshape(rows, n))
    return (1 + hits) / (1 + _DRAWS)


def _field(text: str) -> str:
    return re.sub(r"\s", lambda blank: quote(blank[0]), text)


DEFAULT_MEASURES = ("nDCG@10", "R@100", "RR@10")


@public
def evaluate(
    questions: str | os.PathLike[str] | Sequence[Mapping[str, Any]] | None,
    db_path: AnyStores,
    plans: Mapping[str, Mapping[str, Any] | RetrievePlan | Callable[[Store, str], Sequence[Any]]]
    | Sequence[str]
    | None = None,
    *,
    measures: Sequence[str] = DEFAULT_MEASURES,
    against: str | None = None,
    depth: int = 100,
    progress: Progress = "auto",
) -> Evaluation:
    """Measure how well searches rank what people judged relevant, question by question.

    Parameters
    ----------
    questions
        A list of dicts with ``query`` and ``relevant``: ids, or a dict of ids to grades (integers, 0 is not
        relevant). They may have an ``id``, else they are numbered from 1, and a ``query_vector``. Or a ``.jsonl`` file
        of such objects; a ``.csv`` with a row for each relevant document, whose first line names the columns
        ``question`` and ``document`` and perhaps ``id`` and ``grade``; a folder in BEIR layout (``queries.jsonl``,
        ``qrels/test.tsv``), or the path of its qrels. None: headings of the file, each relevant to its document. That
        shows whether the search works at all; it judges nothing.
    db_path
        The file or files, as in :func:`hybrid_query`.
    plans
        The searches by name. Each is a dict of the options of :func:`hybrid_query` (with ``mode`` "vector" or
        "lexical" those of :func:`vector_query` or :func:`lexical_query`), a :class:`RetrievePlan`, or a function of a
        store and a question that returns results or candidates. A list names some of "lexical", "vector", "rrf",
        "weighted", "convex" and "adaptive"; None is all of these.
    measures
        Names of ir-measures, such as "nDCG@10", "R@100", "RR@10", "AP" or "Success@5". Plans are compared by the first.
    against
        The plan that the others are compared with. None: "adaptive" where it is among them, else the first.
    depth
        How many chunks each search returns, 1 or more; each leg returns as many candidates. Measures use no more.
    progress
        "auto" and "on": a bar in a terminal or notebook, elsewhere a line every 30 s; "off": nothing.

    Returns
    -------
    Evaluation
        The means of each plan as a table, with how far and how surely it differs from the plan ``against``, and every
        question's values. Judgements name documents by ``doc_id`` or
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
    wanted = parsed_measures(measures)
    judged, notices = ([], []) if questions is None else read_questions(questions)
    named = searches(plans)
    against = baseline(named, against)
    depth = whole("depth", depth, 1)
    bar_off = bar_is_off(progress)
    with open_store(db_path) as store:
        if questions is None:
            judged, notices = heading_questions(store.select("evaluating/headings"))
        unit, unknown = unit_of(store.select("evaluating/known_ids"), judged)
        ranked = run_searches(store, judged, named, depth, unit, bar_off)
    scores = {name: calculated(wanted, judged, runs) for name, runs in ranked.items()}
    return Evaluation(
        measures=tuple(wanted),
        unit=unit,
        questions=judged,
        scores=scores,
        ranked=ranked,
        notices=[*notices, *unknown],
        against=against,
    )


def baseline(plans: Collection[str], against: str | None) -> str:
    """Return the plan that others are compared with."""
    if against is None:
        return "adaptive" if "adaptive" in plans else next(iter(plans))
    return choice("against", against, plans)


def run_searches(
    store: Any,
    judged: Sequence[Question],
    named: Mapping[str, Search],
    depth: int,
    unit: str,
    bar_off: bool | None,
    title: str = "questions",
) -> dict[str, dict[str, list[str]]]:
    """Return what each search finds for each question, best first: plan → ``query_id`` → ids."""
    ranked: dict[str, dict[str, list[str]]] = {name: {} for name in named}
    with Bar(title, "question", len(judged), off=bar_off) as bar:
        for question in judged:  # the outer loop, so that a question is embedded once for all plans
            checkpoint()
            for name, search in named.items():
                found = search(store, question, depth)
                ranked[name][question.query_id] = list(dict.fromkeys(pair[unit == "node_id"] for pair in found))
            bar.made(1)
    return ranked


def parsed_measures(measures: Sequence[str]) -> dict[str, Any]:
    """Return measures of ir-measures by the names that they were given."""
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
            meant = _measure_like(name) or "use a name of ir-measures, such as nDCG@10 or R@100."
            raise InputError(f"There is no measure {name!r}; {meant}") from error
        try:
            list(ir_measures.iter_calc([measure], {"question": {"document": 1}}, {"question": {"document": 0.0}}))
        except Exception as error:
            reason = " ".join(str(error).split())
            raise InputError(f"The measure {name!r} cannot be computed here: {reason}") from error
    if not parsed:
        raise InputError("measures is empty. Name one, such as nDCG@10.")
    return parsed


def _measure_like(name: str) -> str:
    """Return which measure was probably meant, as a question; "" for none."""
    import ir_measures

    base, _, cutoff = name.partition("@")
    known = {one.casefold(): one for one in sorted(ir_measures.measures.registry)}
    near = difflib.get_close_matches(base.casefold().replace(" ", ""), known, 1)
    at = cutoff if cutoff.isdigit() and int(cutoff) else "10"
    for meant in [f"{known[near[0]]}@{at}", known[near[0]]] if near else []:
        with suppress(Exception):  # of ir-measures, of which some measures take no cutoff
            return f"did you mean {str(ir_measures.parse_measure(meant))!r}?"
    return ""


def calculated(
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
