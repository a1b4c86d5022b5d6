"""Evaluate searches by questions with judgements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag.errors import InputError, MissingExtraError
from sqlrag.evaluating.comparing import searches
from sqlrag.evaluating.evaluation import Evaluation
from sqlrag.evaluating.judging import read_questions, unit_of
from sqlrag.ingest.run import bars
from sqlrag.options import choice, items, not_blank, whole
from sqlrag.retrieval.querying import opened

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from sqlrag.evaluating.judging import Question
    from sqlrag.retrieval.store import Store
    from sqlrag.types import Progress, RetrievePlan

DEFAULT_MEASURES = ("nDCG@10", "R@100", "RR@10")


def evaluate(
    questions: str | os.PathLike[str] | Sequence[Mapping[str, Any]],
    db_path: str | os.PathLike[str] | Store,
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
        A list of dicts with ``query`` and ``relevant``: ids, or a dict of ids to grades (whole numbers, 0 is not
        relevant). They may have an ``id``, else they are counted from 1, and a ``query_vector``. Or a ``.jsonl`` file
        of such objects, a folder in BEIR layout (``queries.jsonl``, ``qrels/test.tsv``), or the path of its qrels.
    db_path
        The file, or an open :class:`Store`.
    plans
        The searches by name. Each is a dict of the options of :func:`hybrid_query` (with ``mode`` "vector" or
        "lexical" those of :func:`vector_query` or :func:`lexical_query`), a :class:`RetrievePlan`, or a function of a
        store and a question that returns results or candidates. A list names some of "lexical", "vector", "rrf",
        "weighted" and "convex"; None is all of these.
    measures
        Names of ir-measures, such as "nDCG@10", "R@100", "RR@10", "AP" or "Success@5".
    depth
        How many chunks each search returns, 1 or more; each leg gives as many candidates. A measure looks no deeper.
    progress
        A bar: "auto" in a terminal or notebook, "on" always, "off" never.

    Returns
    -------
    Evaluation
        The means of each plan as a table, and every question's values. Judgements name documents by ``doc_id`` or
        chunks by ``node_id``; a document ranks where its best chunk does. Questions without anything relevant are
        left out. Ids that the file lacks are told in ``notices`` and count as missed.

    Raises
    ------
    MissingExtraError
        ir-measures is not installed.
    InputError
        The questions, plans or measures are not as said, a question's id is there twice, or the file has none of the
        judged ids.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        A file is not there or cannot be used.
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

    with opened(db_path) as store:
        unit, notices = unit_of(store.cursor(), judged)
        ranked: dict[str, dict[str, list[str]]] = {name: {} for name in named}
        with tqdm(total=len(judged), desc="questions", unit="question", disable=bar_off, leave=False) as bar:
            for question in judged:  # outside, since a question is embedded once for all plans
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
            # trec_eval ends the whole process at a cutoff below 1.
            if int(measure.params.get("cutoff", 1)) < 1:
                raise ValueError(name)
        except Exception as error:  # noqa: PERF203 - NameError, ValueError and others, by what is wrong
            raise InputError(
                f"There is no measure {name!r}; names are those of ir-measures: nDCG@10, R@100."
            ) from error
    if not parsed:
        raise InputError("measures is empty. Name one, such as nDCG@10.")
    return parsed


def _calculated(
    measures: Mapping[str, Any], judged: Sequence[Question], ranked: Mapping[str, Sequence[str]]
) -> dict[str, dict[str, float]]:
    """Return the values by question and measure. Falling numbers stand for scores, so that the search's order holds."""
    import ir_measures

    qrels = {question.query_id: question.relevant for question in judged}
    run = {query_id: {found: -float(rank) for rank, found in enumerate(ids)} for query_id, ids in ranked.items()}
    values = {query_id: dict.fromkeys(measures, 0.0) for query_id in qrels}
    names = {measure: name for name, measure in measures.items()}
    for metric in ir_measures.iter_calc(list(measures.values()), qrels, run):
        values[metric.query_id][names[metric.measure]] = float(metric.value)
    return values
