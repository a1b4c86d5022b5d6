"""From the words of a question to the terms of the lexical index: plain words, phrases in quotes, prefixes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# "…" where the quotes stand around words, not as in 5" x 7".
_PHRASE = re.compile(r'(?<![^\s(\[{,;:])"([^"]+)"(?![^\s)\]},.;:!?])')

# word* where the star ends a run of two characters or more, not as in **bold** or count(*).
_PREFIX = re.compile(r"""(?<![^\s(\[{,;:])([^\s*"()\[\]{}]{2,})\*(?![^\s)\]},.;:!?])""")

# The rules of plain_words.sql and compound_parts.sql for ASCII; a run of word characters is looked at as a whole, since
# Python's regular expressions would try each start of a long one in turn.
ASCII_WORD = re.compile(r"[A-Za-z](?:\+\+|#)|\.(?i:net)\b|\w+", re.ASCII)

ASCII_NAME = re.compile(r"\.(?i:net)\b|\w+", re.ASCII)

COMPOUND = re.compile(r"\.|[A-Za-z0-9]_|_[A-Za-z0-9]|[a-z]{2}[A-Z][a-z]|[A-Z]{2}[a-z]{2}")


class Parsed(NamedTuple):
    """A question taken apart: all of its words as text, and what stood in quotes or before a star."""

    text: str
    phrases: list[str]
    prefixes: list[str]


@dataclass(frozen=True)
class Terms:
    """The terms that a question looks for and some chunk holds, with their document frequencies.

    ``wanted`` is how many terms it has in all. ``clauses`` numbers the words of the question that each term comes
    from, ``required`` those that a chunk must hold, ``phrases`` are words that must follow each other, with blanks
    around and between them; these three are empty for plain words, as are ``texts`` and ``prefixes``, which the clauses
    stand for, in their order. ``boosts`` multiply what a term adds. ``asked`` is the question that they come from;
    ``unknown`` are its plain words that no chunk holds, each with the nearest words of the store. ``weights`` are the
    inverse document frequencies of its words, by the term that they count as. ``known`` is the share of the terms'
    weight, their idf, that some chunk holds, 0..1, and ``most`` the score of a chunk that is full of all of them; 1 and
    0 with clauses and expansion, and where there are no terms.
    """

    termids: list[int] = field(default_factory=list)
    dfs: list[int] = field(default_factory=list)
    wanted: int = 0
    clauses: list[int] = field(default_factory=list)
    required: list[int] = field(default_factory=list)
    phrases: list[str] = field(default_factory=list)
    boosts: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    asked: Asked | None = field(default=None, compare=False)
    unknown: dict[str, list[str]] = field(default_factory=dict, compare=False)
    weights: dict[str, float] = field(default_factory=dict, compare=False)
    known: float = field(default=1.0, compare=False)
    most: float = field(default=0.0, compare=False)

    @property
    def unreachable(self) -> bool:
        """Whether a required word is in no chunk at all."""
        return not set(self.required).issubset(self.clauses)


class Dictionary(Protocol):
    """The terms of a lexical index: of one file, or of several."""

    def look_up(self, terms: Sequence[str]) -> list[tuple[str, int, int]]:
        """Return ``(term, termid, df)`` of the terms that some chunk holds, in the order of the alphabet."""
        ...

    def beginning_with(self, prefix: str) -> list[tuple[str, int]]:
        """Return ``(term, termid)`` of every term that words with this beginning count as, in the same order."""
        ...

    def chunks_with(self, termids: Sequence[int]) -> int:
        """Return how many chunks hold one of the terms."""
        ...

    def nearest(self, word: str, most: int) -> list[tuple[int, int, str]]:
        """Return the nearest words that differ by at most so many edits, as ``(edits, df, word)``, nearest first."""
        ...


def parse(query_text: str) -> Parsed:
    """Take a question apart. Quotes that are no pair, and stars elsewhere, are punctuation."""
    phrases = _PHRASE.findall(query_text)
    rest = _PHRASE.sub(" ", query_text)
    prefixes = list(dict.fromkeys(_PREFIX.findall(rest)))
    return Parsed(_PREFIX.sub(" ", rest), phrases, prefixes)


class Asked(NamedTuple):
    """What a question looks for: the stems of its plain words, the words of each phrase, folded prefixes.

    ``stems`` has the words that count as each; ``ignored`` are the stop words that do not count.
    """

    stems: dict[str, list[str]]
    phrases: list[list[str]]
    prefixes: list[str]
    ignored: list[str]


def idf(df: int, num_docs: int) -> float:
    """Return Lucene's inverse document frequency, as in ``bm25_contributions.sql``."""
    return math.log(1 + (num_docs - df + 0.5) / (df + 0.5))


AnyTerms = TypeVar("AnyTerms", bound=Terms)


def weighed(terms: AnyTerms, num_docs: int, scale: float) -> AnyTerms:
    """Return plain terms with what is known of their weight, and the most that they can score: ``scale`` times it.

    The weights are whole billionths, so that no order of adding changes their sum.
    """
    held = [round(1e9 * idf(df, num_docs)) for df in terms.dfs if df]
    every = sum(held) + (terms.wanted - len(held)) * round(1e9 * idf(0, num_docs))
    return replace(terms, known=sum(held) / every, most=scale * every / 1e9) if every else terms


def ascii_words(text: str) -> list[str]:
    """Return what ``fts_main_documents.plain_words`` gives for a text of ASCII alone."""
    return [word.lower() for word in ASCII_WORD.findall(text)]


def ascii_parts(text: str) -> list[str]:
    """Return what ``fts_main_documents.compound_parts`` gives for a text of ASCII alone."""
    return [part for name in ASCII_NAME.findall(text) if COMPOUND.search(name) for part in _parts(name)]


def _parts(name: str) -> Iterable[str]:
    return (part.lower() for part in compound_parts(name))


def compound_parts(name: str) -> list[str]:
    """Return the parts of a compound name as they are written, in their order; ``_`` and ``.`` are left out."""
    split = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    split = re.sub(r"([A-Z]+)([A-Z][a-z]{2})", r"\1_\2", split)
    return re.findall(r"[^_.]+", split)


def boosted(terms: Terms, added: Sequence[tuple[int, int, float]], weight: float) -> Terms:
    """Return the terms with others added: those given as ``(termid, df, share)``, shares adding up to 1.

    The terms of the question keep ``1 - weight`` of what they add, shared evenly; the rest goes to the added ones.
    """
    own = {termid: (1 - weight) / len(terms.termids) for termid in terms.termids}
    dfs = dict(zip(terms.termids, terms.dfs, strict=True))
    for termid, df, share in added:
        own[termid] = own.get(termid, 0.0) + weight * share
        dfs[termid] = df
    scale = len(terms.termids)
    boosts = [scale * own[termid] for termid in own]
    return Terms(
        list(own),
        [dfs[termid] for termid in own],
        terms.wanted,
        boosts=boosts,
        asked=terms.asked,
        weights=terms.weights,
    )
