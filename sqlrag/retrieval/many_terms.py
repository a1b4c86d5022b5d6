"""The terms of several files as those of one: each file numbers its own, so that they meet by their texts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlrag.retrieval.terms import FileDictionary, Terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import duckdb

    Asked = Callable[[Callable[[int, duckdb.DuckDBPyConnection], Any]], list[Any]]


class ManyDictionary:
    """The :class:`~sqlrag.retrieval.terms.Dictionary` of several files, for one question.

    It numbers the terms that it has looked up in their order. ``ask`` calls a function with the place and a cursor of
    each file and returns the results in the order of the files.
    """

    def __init__(self, ask: Asked, files: int) -> None:
        self._ask = ask
        self._numbers: dict[str, int] = {}
        # For each file the termid and the document frequency that it has for a number.
        self.own: list[dict[int, tuple[int, int]]] = [{} for _ in range(files)]

    def look_up(self, terms: Sequence[str]) -> list[tuple[str, int, int]]:
        """Return ``(term, number, df)`` of the terms that some chunk holds, df over all files, in order."""
        dfs: dict[str, int] = {}
        for place, found in enumerate(self._ask(lambda _, con: FileDictionary(con).look_up(terms))):
            for term, termid, df in found:
                self.own[place][self._numbers.setdefault(term, len(self._numbers))] = termid, df
                dfs[term] = dfs.get(term, 0) + df
        return [(term, self._numbers[term], df) for term, df in sorted(dfs.items())]

    def beginning_with(self, prefix: str) -> list[tuple[str, int]]:
        """Return ``(term, number)`` of every term that words with this beginning count as in some file, in order."""
        found = self._ask(lambda _, con: FileDictionary(con).beginning_with(prefix))
        # A file may hold such a term by words that begin otherwise.
        terms = sorted({term for rows in found for term, _ in rows})
        return [(term, number) for term, number, _ in self.look_up(terms)]

    def chunks_with(self, termids: Sequence[int]) -> int:
        """Return how many chunks of all files hold one of the terms."""

        def count(place: int, con: duckdb.DuckDBPyConnection) -> int:
            own = self.own[place]
            return FileDictionary(con).chunks_with([own[number][0] for number in termids if number in own])

        return sum(self._ask(count))


@dataclass(frozen=True)
class ManyTerms(Terms):
    """Terms by their numbers in a dictionary of several files."""

    dictionary: ManyDictionary | None = field(default=None, compare=False)

    @classmethod
    def of(cls, terms: Terms, dictionary: ManyDictionary) -> ManyTerms:
        """Return terms that were looked up in the dictionary."""
        return cls(**{**vars(terms), "dictionary": dictionary})

    def of_file(self, place: int) -> tuple[Terms, int]:
        """Return those that a file has and the number of its postings of them.

        They are by the file's own termids, with the document frequencies of all files.
        """
        own = self.dictionary.own[place] if self.dictionary else {}
        kept = [(at, *own[number]) for at, number in enumerate(self.termids) if number in own]
        terms = Terms(
            termids=[termid for _, termid, _ in kept],
            dfs=[self.dfs[at] for at, *_ in kept],
            wanted=self.wanted,
            clauses=[self.clauses[at] for at, *_ in kept] if self.clauses else [],
            required=self.required,
            phrases=self.phrases,
            boosts=[self.boosts[at] for at, *_ in kept] if self.boosts else [],
            texts=self.texts,
            prefixes=self.prefixes,
        )
        return terms, sum(df for *_, df in kept)
