"""From the words of a question to the terms of the lexical index: plain words, phrases in quotes, prefixes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from sqlrag.store.calls import select_by_key
from sqlrag.store.lexical import stem_word

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import duckdb

# "…" where the quotes stand around words, not as in 5" x 7".
_PHRASE = re.compile(r'(?<![^\s(\[{,;:])"([^"]+)"(?![^\s)\]},.;:!?])')
# word* where the star ends a run of two characters or more, not as in **bold** or count(*).
_PREFIX = re.compile(r"""(?<![^\s(\[{,;:])([^\s*"()\[\]{}]{2,})\*(?![^\s)\]},.;:!?])""")
# More are plain words: each costs two statements.
_MOST_PREFIXES = 16

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
    stand for, in their order. ``boosts`` multiply what a term adds. ``asked`` is the question that they come from.
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


@dataclass(frozen=True)
class FileDictionary:
    """The :class:`Dictionary` of one file."""

    con: duckdb.DuckDBPyConnection

    def look_up(self, terms: Sequence[str]) -> list[tuple[str, int, int]]:  # noqa: D102 - as in Dictionary
        statement = "SELECT term, termid, df FROM fts_main_documents.dict WHERE term IN (...)"
        return sorted(select_by_key(self.con, statement, terms))

    def beginning_with(self, prefix: str) -> list[tuple[str, int]]:  # noqa: D102
        return self.con.execute(
            "SELECT term, termid FROM fts_main_documents.dict WHERE term IN (SELECT term FROM fts_main_documents.words "
            "WHERE starts_with(word, $prefix)) ORDER BY term",
            {"prefix": prefix},
        ).fetchall()

    def chunks_with(self, termids: Sequence[int]) -> int:  # noqa: D102
        found: list[tuple[int]] = self.con.execute(
            "SELECT count(DISTINCT rid) FROM fts_main_documents.postings WHERE termid IN (SELECT unnest($termids))",
            {"termids": termids},
        ).fetchall()
        return found[0][0]


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


def asked(con: duckdb.DuckDBPyConnection, query_text: str, stemmer: str, *, syntax: bool = False) -> Asked:
    """Take a question apart as the lexical index sees it. Stop words count only in quotes, or without other words."""
    parsed = _with_single_words(con, parse(query_text)) if syntax else Parsed(query_text, [], [])
    words = list(dict.fromkeys(tokenize(con, parsed.text)))
    quoted = [_plain_words(con, phrase) for phrase in parsed.phrases]
    quoted = [phrase for phrase in quoted if phrase]
    kept = words
    if words:
        stops = stop_words(con)
        kept = [word for word in words if word not in stops]
        if not kept and not quoted and not parsed.prefixes:
            kept = words
    stems: dict[str, list[str]] = {}
    for word in kept:
        stems.setdefault(stem_word(word, stemmer), []).append(word)
    return Asked(stems, quoted, parsed.prefixes, [word for word in words if word not in kept])


def query_terms(
    con: duckdb.DuckDBPyConnection,
    query_text: str,
    stemmer: str,
    *,
    syntax: bool = False,
    conjunctive: bool = False,
    dictionary: Dictionary | None = None,
) -> Terms:
    """Look up the terms of a question. Stop words count only in quotes, or where there is nothing else.

    With ``syntax``, quotes and stars mean phrases and prefixes; else they are punctuation. ``dictionary`` is that of
    the file unless given.
    """
    dictionary = FileDictionary(con) if dictionary is None else dictionary
    question = asked(con, query_text, stemmer, syntax=syntax)
    quoted, prefixes = question.phrases, question.prefixes
    in_quotes = {stem_word(word, stemmer) for phrase in quoted for word in phrase}
    wanted = sorted(question.stems.keys() | in_quotes)
    found = dictionary.look_up(wanted)
    terms = Terms([termid for _, termid, _ in found], [df for _, _, df in found], len(wanted), asked=question)
    if not quoted and not prefixes:
        return terms
    number = {term: clause for clause, term in enumerate(wanted)}
    terms.texts.extend(wanted)
    terms.clauses.extend(number[term] for term, _, _ in found)
    terms.required.extend(number[term] for term in wanted if conjunctive or term in in_quotes)
    terms.phrases.extend(f" {' '.join(phrase)} " for phrase in quoted)
    # A longer one first: where a shorter one shares its terms, holding the longer is holding the shorter.
    terms.prefixes.extend(sorted(prefixes, key=lambda word: (-len(word), word)))
    for clause, prefix in enumerate(terms.prefixes, len(wanted)):
        _add_prefix(dictionary, terms, prefix, clause, required=conjunctive)
    return terms


def _with_single_words(con: duckdb.DuckDBPyConnection, parsed: Parsed) -> Parsed:
    """Keep as prefixes, folded, what the index has as one word; the rest (such as three Han characters) are words."""
    kept, text = [], parsed.text
    for number, prefix in enumerate(parsed.prefixes):
        words = _plain_words(con, prefix) if number < _MOST_PREFIXES else []
        if len(words) == 1 and len(words[0]) > 1:
            kept.append(words[0])
        else:
            text += " " + prefix
    return Parsed(text, parsed.phrases, list(dict.fromkeys(kept)))


def _add_prefix(dictionary: Dictionary, terms: Terms, prefix: str, clause: int, *, required: bool) -> None:
    """Add every term that words with this beginning count as; they weigh alike, by how many chunks hold one of them."""
    rows = dictionary.beginning_with(prefix)
    known = set(terms.termids)
    new = [termid for _, termid in rows if termid not in known]
    if required and len(new) == len(rows):  # else another word that is required stands for it
        terms.required.append(clause)
    if not new:
        return
    terms.termids.extend(new)
    terms.dfs.extend([dictionary.chunks_with(new)] * len(new))
    terms.clauses.extend([clause] * len(new))


def stop_words(con: duckdb.DuckDBPyConnection) -> set[str]:
    """Return the words that the file's list leaves out of a question, folded as those of a question are."""
    words = [word for (word,) in con.execute("SELECT word FROM fts_main_documents.stopwords").fetchall()]
    others = [word for word in words if not word.isascii()]
    fold = "SELECT list_transform($words, lambda word: fts_main_documents.fold(fts_main_documents.composed(word)))"
    folded = con.execute(fold, {"words": others}).fetchall()[0][0] if others else []
    return {*(word.lower() for word in words if word.isascii()), *folded}


def idf(df: int, num_docs: int) -> float:
    """Return Lucene's inverse document frequency, as in ``bm25_contributions.sql``."""
    return math.log(1 + (num_docs - df + 0.5) / (df + 0.5))


def tokenize(con: duckdb.DuckDBPyConnection, text: str) -> list[str]:
    """Return the words of a text as ``fts_main_documents.tokenize`` does, which takes a millisecond to plan."""
    if text.isascii():
        return [*ascii_words(text), *ascii_parts(text)]
    words: list[str] = con.execute("SELECT fts_main_documents.tokenize($text)", {"text": text}).fetchall()[0][0]
    return words


def _plain_words(con: duckdb.DuckDBPyConnection, text: str) -> list[str]:
    if text.isascii():
        return ascii_words(text)
    words: list[str] = con.execute("SELECT fts_main_documents.plain_words($text)", {"text": text}).fetchall()[0][0]
    return words


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
    return Terms(list(own), [dfs[termid] for termid in own], terms.wanted, boosts=boosts, asked=terms.asked)
