"""Where the words of a question stand in a text, as the lexical index sees both."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.retrieval.terms import ASCII_NAME, ASCII_WORD, COMPOUND, asked, compound_parts, stop_words
from sqlrag.stopping import watched
from sqlrag.store.lexical import stem_words
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import duckdb

    from sqlrag.retrieval.terms import Asked

Span = tuple[int, int]

_SURROGATES = re.compile("[\ud800-\udfff]")
# Vowels and final consonants of Hangul compose with what stands before them, though they are no marks.
_JOINING = re.compile("[\u1160-\u11ff\ud7b0-\ud7ff]")
_SPELL = {
    "fold": "SELECT list_transform($texts, lambda text: fts_main_documents.fold(text))",
    "composed": "SELECT list_transform($texts, lambda text: fts_main_documents.composed(text))",
}
_CLASS = re.compile(r"'([^']*\\x\{[^']*)'")
_CODE = re.compile(r"\\x\{([0-9a-f]+)\}")


class _Word(NamedTuple):
    """A word as it is written and the characters that it takes up; phrases are of plain ones."""

    text: str
    span: Span
    plain: bool


def spans(
    con: duckdb.DuckDBPyConnection, query_text: str, texts: Sequence[str], stemmer: str, *, syntax: bool
) -> list[list[Span]]:
    """Return where each text holds what a question looks for: in order, spans that touch made one."""
    return spans_of(con, asked(con, query_text, stemmer, syntax=syntax), texts, stemmer)


def spans_of(con: duckdb.DuckDBPyConnection, question: Asked, texts: Sequence[str], stemmer: str) -> list[list[Span]]:
    """Do the same for a question that has been taken apart; ``con`` needs the macros of a store, not the store."""
    texts = [_SURROGATES.sub("\ufffd", text) for text in texts]  # as many characters as before
    words = [
        list(watched(_words_of(text, composed))) for text, composed in zip(texts, _composed(con, texts), strict=True)
    ]
    folded = _spelled(con, "fold", (word.text for found in words for word in found))
    wanted = _wanted(con, question, set(folded.values()), stemmer)
    return [
        _merged([*_single(found, folded, wanted), *_in_phrases(found, folded, question.phrases)]) for found in words
    ]


def _wanted(con: duckdb.DuckDBPyConnection, question: Asked, words: set[str], stemmer: str) -> set[str]:
    """Return those of the words that count wherever they stand; stop words in quotes only count in their phrase."""
    quoted = {word for phrase in question.phrases for word in phrase}
    quoted -= stop_words(con) if quoted else set()
    stems = {*question.stems, *stem_words(sorted(quoted), stemmer)}
    found = sorted(words)
    by_stem = {word for word, stem in zip(found, stem_words(found, stemmer), strict=True) if stem in stems}
    prefixes = tuple(question.prefixes)
    return by_stem | {word for word in (watched(found) if prefixes else ()) if word.startswith(prefixes)}


def _single(found: list[_Word], folded: dict[str, str], wanted: set[str]) -> Iterator[Span]:
    return (word.span for word in found if folded[word.text] in wanted)


def _in_phrases(found: list[_Word], folded: dict[str, str], phrases: list[list[str]]) -> Iterator[Span]:
    """Yield the words of each place where those of a phrase follow each other."""
    plain = [word for word in found if word.plain] if phrases else []
    # Each word is one character, so that Python's search for a string finds phrases, in linear time.
    letters = {word: chr(number) for number, word in enumerate(sorted({w for phrase in phrases for w in phrase}), 1)}
    written = "".join(letters.get(folded[word.text], "\0") for word in plain)
    for phrase in dict.fromkeys("".join(letters[word] for word in phrase) for phrase in phrases):
        # A phrase that repeats itself, such as "a a a", may begin again inside of itself: it is followed, not searched.
        again = next(step for step in range(1, len(phrase) + 1) if phrase.startswith(phrase[step:]))
        tail = phrase[-again:]
        start, done = written.find(phrase), 0
        while start >= 0:
            end = start + len(phrase)
            while written.startswith(tail, end):
                end += again
            yield from (word.span for word in plain[max(start, done) : end])
            start, done = written.find(phrase, end - len(phrase) + 1), end


def _merged(found: Iterable[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in watched(sorted(found)):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


class _Composed(NamedTuple):
    """A text as the macro ``composed`` gives it, and for each of its characters what it was made of."""

    text: str
    origins: Sequence[Span] | None  # None where nothing changed

    def word(self, start: int, end: int, *, plain: bool = True) -> _Word:
        span = (start, end) if self.origins is None else (self.origins[start][0], self.origins[end - 1][1])
        return _Word(self.text[start:end], span, plain)


def _composed(con: duckdb.DuckDBPyConnection, texts: Sequence[str]) -> list[_Composed]:
    whole = _spelled(con, "composed", texts)
    parts = {text: _clusters(text) for text in texts if whole[text] != text}
    single = _spelled(con, "composed", (part for text in parts for part in parts[text]))
    found = []
    for text in texts:
        origins: list[Span] | None = [] if text in parts else None
        done = 0
        for part in parts.get(text, ()):
            assert origins is not None  # noqa: S101 - it is there where there are parts
            origins += [(done, done + len(part))] * len(single[part])
            done += len(part)
        found.append(_Composed("".join(single[part] for part in parts[text]) if text in parts else text, origins))
    return found


def _clusters(text: str) -> list[str]:
    """Cut a text into characters, each with the marks that compose with it."""
    starts = [
        place
        for place, character in enumerate(text)
        if not unicodedata.category(character).startswith("M") and not _JOINING.match(character)
    ]
    borders = sorted({0, *starts, len(text)})
    return [text[start:end] for start, end in pairwise(borders)]


def _words_of(text: str, composed: _Composed) -> Iterator[_Word]:
    """Yield what the macros plain_words, compound_parts and run_characters find, each word with its place."""
    if text.isascii():
        yield from (_Word(found[0], found.span(), True) for found in ASCII_WORD.finditer(text))
        yield from _parts(text, ASCII_NAME)
        return
    plain, runs, names = _patterns()
    yield from (composed.word(*found.span()) for found in plain.finditer(composed.text))
    places = [found.span() for found in runs.finditer(composed.text)]
    for start, end in places:
        yield from (composed.word(at, min(at + 2, end)) for at in range(start, max(start + 1, end - 1)))
    for start, end in places:
        if end - start > 1:
            yield from (composed.word(at, at + 1, plain=False) for at in range(start, end))
    yield from _parts(text, names)


def _parts(text: str, names: re.Pattern[str]) -> Iterator[_Word]:
    """Yield the parts of compound names."""
    known: dict[str, list[str]] = {}
    for name in names.finditer(text):
        written = name[0]
        if written not in known:
            known[written] = compound_parts(written) if COMPOUND.search(written) else []
        end = name.start()
        for part in known[written]:
            start = text.index(part, end)
            end = start + len(part)
            yield _Word(part, (start, end), False)


@cache
def _patterns() -> tuple[re.Pattern[str], re.Pattern[str], re.Pattern[str]]:
    """Return what finds plain words, runs without blanks, and compound names, from the text of the macros."""
    plain, runs, compounds = (_pattern(f"macros/{name}") for name in ("plain_words", "run_pairs", "compound_parts"))
    letters = compounds[compounds.index("[") : compounds.index("]") + 1]
    return (
        re.compile(plain, re.ASCII),
        re.compile(runs),
        re.compile(rf"\.(?i:net)\b|{letters}+", re.ASCII),
    )


def _pattern(name: str) -> str:
    """Return the regular expression of a macro in Python's spelling."""
    (found,) = _CLASS.findall(read_sql(name))
    return _CODE.sub(lambda code: f"\\U{int(code[1], 16):08x}", found)


def _spelled(con: duckdb.DuckDBPyConnection, macro: str, texts: Iterable[str]) -> dict[str, str]:
    """Return what the macro ``fold`` or ``composed`` makes of each text; what it does to ASCII is known."""
    distinct = list(dict.fromkeys(texts))
    known = {text: text.lower() if macro == "fold" else text for text in distinct if text.isascii()}
    others = [text for text in distinct if text not in known]
    if others:
        made = con.execute(_SPELL[macro], {"texts": others}).fetchall()[0][0]
        known |= dict(zip(others, made, strict=True))
    return known
