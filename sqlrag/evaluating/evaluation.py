"""What an evaluation found: a table of means, the values of every question, and comparisons."""

from __future__ import annotations

import html
import math
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from sqlrag.frames import frames
from sqlrag.options import choice, path, whole

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    import pandas as pd  # type: ignore[import-untyped, unused-ignore]  # its stubs are a package of their own

    from sqlrag.evaluating.judging import Question


# A question must not steer the terminal, nor break a row.
_UNPRINTABLE = re.compile(r"[\s\x00-\x1f\x7f-\x9f]+")


class Comparison(NamedTuple):
    """Two plans question by question: how many each wins, the mean difference, and how likely chance does as much.

    ``p_value`` is that of the two-sided sign test over the questions that are no tie, 0..1.
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
        What the reader should know, such as judged ids that the file lacks.
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

        Blanks in ids are written as in addresses (``%20``), since the format has none. Files of these names are
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
        texts = len(rows[0]) - len(self.measures)  # to the left, values to the right
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
        """Return the cells, the heading first."""
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
    """Return how likely a fair coin is at least as far from even: two-sided, exact."""
    total, fewer = wins + losses, min(wins, losses)
    return min(1.0, float(2 * sum(math.comb(total, k) for k in range(fewer + 1)) / 2**total))


def _field(text: str) -> str:
    return re.sub(r"\s", lambda blank: quote(blank[0]), text)
