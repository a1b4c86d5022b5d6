"""Recommends fusion, alpha, stemmer and chunk size for a corpus: half of the questions chooses, the others check."""

from __future__ import annotations

import html
from collections.abc import Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlrag import scratch
from sqlrag.arguments import counted, items, whole
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.lexical import check_stemmer
from sqlrag.engines.duckdb.rewrite import backup
from sqlrag.errors import InputError
from sqlrag.explore.evaluate import (
    PRESETS,
    Evaluation,
    baseline,
    calculated,
    cell,
    in_columns,
    in_words,
    parsed_measures,
    run_searches,
    searches,
)
from sqlrag.explore.questions import hashed, read_questions, unit_of
from sqlrag.ingest.update import apply_settings
from sqlrag.progress import bar_is_off
from sqlrag.ranking.results import frames
from sqlrag.search.open import open_store
from sqlrag.search.store import Store
from sqlrag.types import DEFAULT_ALPHA

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import pandas as pd

    from sqlrag.explore.evaluate import Comparison
    from sqlrag.explore.questions import Question
    from sqlrag.search.open import AnyStores
    from sqlrag.types import Progress, RetrievePlan

_ALPHAS = (0.5, 0.6, 0.7, 0.8, 0.9)

# Adaptive first: of equal ones the first is chosen.
_CANDIDATES = {"adaptive": PRESETS["adaptive"], **PRESETS} | {
    f"convex alpha={alpha}": {"fusion": "convex", "alpha": alpha} for alpha in _ALPHAS if alpha != DEFAULT_ALPHA
}


@dataclass(frozen=True)
class Advice:
    """What is recommended for one knob: "search" (fusion and alpha), "stemmer" or "chunk_size".

    ``best`` is the candidate with the highest mean over the questions to tune with, ``present`` the one in use;
    ``tuning`` and ``held_out`` compare the two over these questions and over those kept aside. ``taken`` says whether
    ``best`` is recommended: where it is better on those kept aside, and not by chance.
    """

    knob: str
    present: str
    best: str
    tuning: Comparison
    held_out: Comparison
    taken: bool
    sentence: str


class Recommendation:
    """What :func:`sqlrag.recommend` found.

    Parameters
    ----------
    advice
        One for each knob that was tried.
    settings
        What to change, by option: of a search "mode", "fusion", "alpha" and so on (or "plan", its name, where it is
        a function or a :class:`RetrievePlan`), of the file "stemmer" and "chunk_size". Empty: leave all as it is.
    tuning, held_out
        Every candidate over the questions that chose, and over those that checked.
    notices
        Remarks for the reader.
    """

    def __init__(
        self,
        *,
        advice: Sequence[Advice],
        settings: Mapping[str, Any],
        tuning: Evaluation,
        held_out: Evaluation,
        notices: Sequence[str] = (),
    ) -> None:
        self.advice = tuple(advice)
        self.settings = dict(settings)
        self.tuning = tuning
        self.held_out = held_out
        self.notices = list(notices)

    @property
    def sentence(self) -> str:
        """The recommendation in one sentence."""
        if not self.settings:
            return "Leave everything as it is: nothing is better, beyond chance, on the questions kept aside."
        taken = sum(one.taken for one in self.advice)
        alone = " Each was measured alone: measure them together before you keep them." if taken > 1 else ""
        return f"Use {', '.join(f'{name}={value}' for name, value in self.settings.items())}.{alone}"

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per candidate: ``plan``, and the mean over either half of the questions by the measure."""
        name = self.tuning.measures[0]
        return [
            {"plan": plan, f"{name} tuning": of[name], f"{name} held out": self.held_out.means[plan][name]}
            for plan, of in self.tuning.means.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as values of JSON."""
        return {
            "settings": self.settings,
            "measure": self.tuning.measures[0],
            "tuning_questions": len(self.tuning.questions),
            "held_out_questions": len(self.held_out.questions),
            "advice": [
                {
                    "knob": one.knob,
                    "present": one.present,
                    "best": one.best,
                    "taken": one.taken,
                    "tuning": one.tuning._asdict(),
                    "held_out": one.held_out._asdict() | {"verdict": one.held_out.verdict},
                    "sentence": one.sentence,
                }
                for one in self.advice
            ],
            "candidates": self.rows(),
            "notices": self.notices,
        }

    def df(self) -> pd.DataFrame:
        """Return :meth:`rows` as a pandas DataFrame.

        Raises
        ------
        MissingExtraError
            If pandas is not installed.
        """
        frame: pd.DataFrame = frames("pandas", "Recommendation.df()").DataFrame(self.rows())
        return frame

    def __str__(self) -> str:
        """Return the table of candidates and the sentences."""
        rows = self.rows()
        table = in_columns(list(rows[0]), [[cell(name, value) for name, value in row.items()] for row in rows])
        return "\n".join([table, "", *(f"{one.knob}: {one.sentence}" for one in self.advice), "", self.sentence])

    def __repr__(self) -> str:
        """Return the same with the notices."""
        return "\n".join([str(self), *(f"Note: {notice}" for notice in self.notices)])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(repr(self))}</pre>"


@public
def recommend(
    questions: str | os.PathLike[str] | Sequence[Mapping[str, Any]],
    db_path: AnyStores,
    plans: Mapping[str, Mapping[str, Any] | RetrievePlan | Callable[[Store, str], Sequence[Any]]]
    | Sequence[str]
    | None = None,
    *,
    stemmers: Sequence[str] = (),
    chunk_sizes: Sequence[int] = (),
    against: str | None = None,
    measure: str = "nDCG@10",
    depth: int = 100,
    progress: Progress = "auto",
) -> Recommendation:
    """Recommend fusion, alpha, stemmer and chunk size for a corpus, by questions with what was judged relevant.

    Each knob is turned alone. One half of the questions chooses, by the highest mean; the other half is compared with
    what there is now, and a change is recommended only where it is better there with a p-value of .05 or less (see
    :class:`Comparison`). Anything else is noise, and is said to be. Which half a question is in depends on the SHA-256
    of its text: the same questions give the same recommendation. Each knob is a test of its own: of three that change
    nothing, one passes by chance in up to one case of fourteen.

    The file is not changed. For each stemmer it is copied into the temporary folder and its words are indexed again;
    for each chunk size its documents are also rechunked from their stored text and embedded with its model, which takes
    as long as building it. Copies are removed before the next is made.

    Parameters
    ----------
    questions
        As for :func:`evaluate`; a few dozen at least. Not None: headings judge nothing.
    db_path
        The file or files, as in :func:`hybrid_query`; one file for ``stemmers`` and ``chunk_sizes``.
    plans
        The searches to choose from, as for :func:`evaluate`. None: its six, and "convex" with an ``alpha`` of .5 to .9.
    stemmers
        Stemmers to try beside that of the file, such as "english", "german" or "none".
    chunk_sizes
        Chunk sizes to try beside that of the file, in its unit. Chunks that a program made stay as they are.
    against
        The plan that is in use now. None: "adaptive" where it is among them, else the first.
    measure
        A name of ir-measures.
    depth
        How many chunks each search returns, as for :func:`evaluate`.
    progress
        "auto" and "on": a bar in a terminal or notebook, elsewhere a line every 30 s; "off": nothing.

    Returns
    -------
    Recommendation
        ``.settings`` to change, the ``.advice`` for each knob with a sentence, and both halves as evaluations.

    Raises
    ------
    MissingExtraError
        ir-measures is not installed.
    InputError
        An argument is not valid, there is only one question, chunk sizes are to be compared by judgements of chunks, or
        stemmers or chunk sizes are to be tried with a store that is not one file.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        A store does not exist or cannot be used or copied.
    ModelMismatchError, ModelUnavailableError, ProviderError
        As for :func:`vector_query`.

    Examples
    --------
    >>> recommend("questions.csv", "kb.duckdb", stemmers=["english", "none"])  # doctest: +SKIP
    """
    if questions is None:
        raise InputError("Headings judge nothing, so nothing can be chosen by them. Write questions down.")
    parsed_measures([measure])
    judged, notices = read_questions(questions)
    if len({one.text for one in judged}) < 2:
        raise InputError("There is one question; it takes two to choose by one and to check by the other.")
    named = searches(_CANDIDATES if plans is None else plans)
    against = baseline(named, against)
    depth = whole("depth", depth, 1)
    bar_off = bar_is_off(progress)
    with open_store(db_path) as store:
        unit, unknown = unit_of(store.select("evaluating/known_ids"), judged)
        own, copies = _copies(store, unit, stemmers, chunk_sizes)
        ranked = run_searches(store, judged, named, depth, unit, bar_off)
        for copy in copies:
            with copy.opened(store, notices, bar_off) as other:
                search = {f"{against}, {copy.name}": named[against]}
                ranked |= run_searches(other, judged, search, depth, unit, bar_off, copy.name)
    measures = parsed_measures([measure])
    tuning, held_out = (
        Evaluation(
            measures=tuple(measures),
            unit=unit,
            questions=half,
            scores={name: calculated(measures, half, runs) for name, runs in of_half.items()},
            ranked=of_half,
            against=against,
        )
        for half in _halves(judged)
        for of_half in [{plan: {one.query_id: runs[one.query_id] for one in half} for plan, runs in ranked.items()}]
    )
    advice = [_advice("search", {name: name for name in [against, *named]}, tuning, held_out)]
    settings = _options_of(advice[0].best, plans) if advice[0].taken else {}
    for knob in dict.fromkeys(copy.knob for copy in copies):
        tried = {f"{against}, {copy.name}": copy for copy in copies if copy.knob == knob}
        names = {against: f"{knob}={own[knob]}"} | {plan: copy.name for plan, copy in tried.items()}
        advice.append(_advice(knob, names, tuning, held_out))
        if advice[-1].taken:
            settings[knob] = next(copy.value for copy in copies if copy.name == advice[-1].best)
    return Recommendation(
        advice=advice, settings=settings, tuning=tuning, held_out=held_out, notices=[*notices, *unknown]
    )


def _halves(judged: Sequence[Question]) -> tuple[list[Question], list[Question]]:
    """Return the questions to tune with and those kept aside, each in their order."""
    # A question that is given several times, with a document each, is in one half alone.
    texts = sorted({one.text for one in judged}, key=hashed)
    chosen = set(texts[: len(texts) // 2])
    return [one for one in judged if one.text in chosen], [one for one in judged if one.text not in chosen]


def _advice(knob: str, names: Mapping[str, str], tuning: Evaluation, held_out: Evaluation) -> Advice:
    """Return what the first evaluation chooses, and the second says of it, among plans by what they are called.

    The first plan is the one in use.
    """
    measure, means = tuning.measures[0], tuning.means
    against = next(iter(names))
    best = max(names, key=lambda plan: round(means[plan][measure], 9))  # of equal ones the first
    checked = held_out.compare(best, against)
    taken = checked.verdict == "real" and checked.difference > 0
    count = counted(len(tuning.questions), "question")
    if best == against:
        sentence = f"Keep {names[against]}: over the {count} to tune with, nothing tried has a higher {measure}."
    else:
        two = {plan: names[plan] for plan in (best, against)}
        values = ", ".join(f"{name} {means[plan][measure]:.4f}" for plan, name in two.items())
        verdict = "Take" if taken else f"Keep {names[against]}, do not take"
        sentence = (
            f"{verdict} {names[best]}. {names[best]} is best over the {count} to tune with ({values}). "
            f"Kept aside: {in_words(held_out, measure, checked, two)}"
        )
    return Advice(knob, names[against], names[best], tuning.compare(best, against), checked, taken, sentence)


def _options_of(name: str, plans: Any) -> dict[str, Any]:
    plan = (plans if isinstance(plans, Mapping) else _CANDIDATES)[name]
    return dict(plan) if isinstance(plan, Mapping) else {"plan": name}


@dataclass(frozen=True)
class _Copy:
    """A copy of a file with another stemmer or chunk size."""

    knob: str
    value: Any

    @property
    def name(self) -> str:
        return f"{self.knob}={self.value}"

    @contextmanager
    def opened(self, store: Any, notices: list[str], bar_off: bool | None) -> Iterator[Store]:
        """Make the copy, and open it for searches; it is removed afterwards."""
        with closing(scratch.Folder()) as folder:
            path = folder.path / "copy.duckdb"
            backup(store.path, path)
            by_size = self.knob == "chunk_size"
            embedder = store.embedder() if by_size else store.loaded_embedder
            report = apply_settings(path, **{self.knob: self.value}, embedder=embedder, bar_off=bar_off)
            if by_size:
                notices.append(
                    f"{self.name}: {counted(len(report.rechunked), 'document')} rechunked into "
                    f"{counted(report.chunks, 'chunk')}, {counted(report.embedded, 'text')} embedded."
                    if report.rechunked
                    else f"{self.name} changes nothing: a program made the chunks, or the size of the file is already "
                    "the window of the model."
                )
            notices += [f"{self.name}: {failure.doc_id}: {failure.reason}" for failure in report.failures[:5]]
            with Store(path, embedder=embedder) as copy:
                yield copy


def _copies(
    store: Any, unit: str, stemmers: Sequence[str], chunk_sizes: Sequence[int]
) -> tuple[dict[str, Any], list[_Copy]]:
    """Return the settings of the file, and the copies to make: one for each setting that is not its own."""
    wanted: dict[str, list[Any]] = {
        "stemmer": [check_stemmer(name) for name in items("stemmers", stemmers, "['english', 'none']")],
        "chunk_size": [
            whole("Each of chunk_sizes", size, 1) for size in items("chunk_sizes", chunk_sizes, "[200, 400]")
        ],
    }
    if not any(wanted.values()):
        return {}, []
    if not isinstance(store, Store):
        raise InputError(
            "Stemmers and chunk sizes are tried on copies of one DuckDB file. Name one file, or leave them out."
        )
    if wanted["chunk_size"] and unit == "node_id":
        raise InputError(
            "Chunk sizes cannot be compared by judgements of chunks, which other sizes do not have. Judge documents."
        )
    settings = store.get_embedding_metadata()
    own = {"stemmer": settings["store"]["stemmer"], "chunk_size": settings["chunking"]["chunk_size"]}
    return own, [
        _Copy(knob, value) for knob, values in wanted.items() for value in dict.fromkeys(values) if value != own[knob]
    ]
