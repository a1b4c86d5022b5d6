"""The lexical index: its maintenance, the terms and words of questions, and the spans that match them."""

from __future__ import annotations

import os
import re
import unicodedata
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import duckdb
import pyarrow as pa

from sqlrag.arguments import shown
from sqlrag.cancellation import watched
from sqlrag.engines.duckdb.schema import read_sql, run_script
from sqlrag.engines.duckdb.statements import register, select_by_key
from sqlrag.errors import InputError
from sqlrag.locks import keep
from sqlrag.normalize import without_surrogates
from sqlrag.ranking.snippets import WeighedWord
from sqlrag.ranking.terms import (
    ASCII_NAME,
    ASCII_WORD,
    COMPOUND,
    Asked,
    Parsed,
    Terms,
    ascii_parts,
    ascii_words,
    compound_parts,
    idf,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlrag.ranking.terms import Dictionary

DEFAULT_STEMMER = "porter"


def check_stemmer(stemmer: str) -> str:
    """Return the name of a stemmer, or raise InputError with the valid names."""
    if not isinstance(stemmer, str) or stemmer not in stemmers():
        raise InputError(f"There is no stemmer {shown(stemmer)}. Valid names: {', '.join(stemmers())}.")
    return stemmer


def stemmers() -> list[str]:
    """Return the valid names."""
    import Stemmer

    return ["none", *sorted(Stemmer.algorithms())]


def stem_words(words: Sequence[str], stemmer: str) -> list[str]:
    """Return the term that each word counts as, as ``fts_main_documents.term_of`` does.

    It is the stem by the stemmer of the word's script, else by ``stemmer``. A stop word is a term of its own: that of
    "one" is "on-".
    """
    if stemmer == "none":
        return list(words)
    import Stemmer

    stems: list[str] = Stemmer.Stemmer(stemmer).stemWords(list(words))
    others = [place for place, word in enumerate(words) if "\u0370" <= word[-1:] <= "\u097f"]
    for first, last, name, another in _SCRIPTS if others else ():
        places = [place for place in others if first <= words[place][-1] <= last and stemmer != another]
        stem_of = {"greek": _greek_stem, "arabic": _arabic_stem}.get(name) or Stemmer.Stemmer(name).stemWord
        for place in places:
            stems[place] = stem_of(words[place])
    own = _own_terms()
    return [
        word if word in own else f"{stem}-" if stem in own else stem for word, stem in zip(words, stems, strict=True)
    ]


# As in script_stem.sql: the letters of a script, its stemmer, and that of another language in the same letters.
_SCRIPTS = (
    ("\u0370", "\u03ff", "greek", ""),
    ("\u0400", "\u052f", "russian", "serbian"),
    ("\u0600", "\u06ff", "arabic", "persian"),
    ("\u0900", "\u097f", "hindi", "nepali"),
)


def _greek_stem(word: str) -> str:
    """Return what the macro greek_stem gives, by its own regular expression."""
    ending, kept = _literals("macros/greek_stem")
    return word if len(word) < 3 else re.sub(ending, kept, word, count=1)


def _arabic_stem(word: str) -> str:
    """Return what the macro arabic_stem gives, by its own regular expressions."""
    written, plain, conjunction, kept, affixes, stem = _literals("macros/arabic_stem")
    word = word.translate(str.maketrans(written, plain))
    return re.sub(affixes, stem, re.sub(conjunction, kept, word))


@cache
def _literals(name: str) -> list[str]:
    """Return the texts in quotes of a SQL file, but for its comments."""
    return re.findall("'([^']*)'", re.sub("(?m)^--.*", "", read_sql(name)))


@cache
def _own_terms() -> frozenset[str]:
    """Return what the macro own_terms gives, without a database."""
    return frozenset(_literals("macros/own_terms")[0].split())


@lru_cache(maxsize=4096)
def stem_word(word: str, stemmer: str) -> str:
    """Return the term that one word of a query counts as."""
    return stem_words([word], stemmer)[0]


# Chunks whose words are staged at a time: those of a large build would take gigabytes, and DuckDB works on the lists of
# words of 2,048 chunks at a time where there are as many.
_STAGED_CHUNKS = 1024

# Their text: in scripts without blanks nearly every character begins a word.
_STAGED_BYTES = 2_500_000

# Postings that are sorted at a time.
_SORTED_POSTINGS = 1_000_000


def add_chunks(con: duckdb.DuckDBPyConnection, first: int, stemmer: str) -> None:
    """Index the chunks whose ``rid`` is ``first`` or more, inside the caller's transaction."""
    run_script(con, "index/begin_postings")
    borders = con.execute(
        read_sql("index/borders"), {"first": first, "many": _STAGED_CHUNKS, "bytes": _STAGED_BYTES}
    ).fetchall()
    for (start,), (end,) in pairwise([*borders, (None,)]):
        run_script(con, "index/choose_new", first=start, end=end)
        run_script(con, "index/stage_tokens")
        words = [row[0] for row in con.execute(read_sql("index/new_words")).fetchall()]
        if words:
            new_words = pa.table({"word": words, "term": stem_words(words, stemmer)})
            register(con, "new_words", new_words)
            con.execute(read_sql("index/insert_words"))
            con.unregister("new_words")
        run_script(con, "index/add_chunks")
    parts = con.execute(read_sql("index/parts_of_postings"), {"many": _SORTED_POSTINGS}).fetchall()
    for low, high in parts:
        run_script(con, "index/add_postings", low=low, high=high)
    run_script(con, "index/end_postings")


def remove_documents(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> None:
    """Delete every chunk of these documents from the table and the index, inside the caller's transaction."""
    run_script(con, "index/choose_documents", doc_ids=list(doc_ids))
    run_script(con, "index/stage_tokens")
    run_script(con, "index/remove_chunks")


def rebuild(con: duckdb.DuckDBPyConnection, stemmer: str) -> None:
    """Rebuild the index from every chunk, inside the caller's transaction."""
    run_script(con, "index/clear")
    add_chunks(con, 0, stemmer)


# Further ones count as plain words: each costs two statements.
_MOST_PREFIXES = 16


@dataclass(frozen=True)
class FileDictionary:
    """The :class:`Dictionary` of one file."""

    con: duckdb.DuckDBPyConnection

    def look_up(self, terms: Sequence[str]) -> list[tuple[str, int, int]]:
        statement = "SELECT term, termid, df FROM fts_main_documents.dict WHERE term IN (...)"
        return sorted(select_by_key(self.con, statement, terms))

    def beginning_with(self, prefix: str) -> list[tuple[str, int]]:
        return self.con.execute(
            "SELECT term, termid FROM fts_main_documents.dict WHERE term IN (SELECT term FROM fts_main_documents.words "
            "WHERE starts_with(word, $prefix)) ORDER BY term",
            {"prefix": prefix},
        ).fetchall()

    def chunks_with(self, termids: Sequence[int]) -> int:
        found: list[tuple[int]] = self.con.execute(
            "SELECT count(DISTINCT rid) FROM fts_main_documents.postings WHERE termid IN (SELECT unnest($termids))",
            {"termids": termids},
        ).fetchall()
        return found[0][0]

    def nearest(self, word: str, most: int) -> list[tuple[int, int, str]]:
        return self.con.execute(read_sql("index/nearest_words"), {"word": word, "most": most}).fetchall()


def asked(
    con: duckdb.DuckDBPyConnection,
    query_text: str,
    stemmer: str,
    *,
    syntax: bool = False,
    stops: Collection[str] | None = None,
) -> Asked:
    """Split a question as the lexical index sees it. Stop words count only in quotes, or without other words.

    ``stops`` are the stop words, where they are known; those of the file unless given.
    """
    parsed = _with_single_words(con, parse(query_text)) if syntax else Parsed(query_text, [], [])
    words = list(dict.fromkeys(tokenize(con, parsed.text)))
    quoted = [_plain_words(con, phrase) for phrase in parsed.phrases]
    quoted = [phrase for phrase in quoted if phrase]
    kept = words
    if words:
        stops = stop_words(con) if stops is None else stops
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
    chunks: int | None = None,
    dictionary: Dictionary | None = None,
    stops: Collection[str] | None = None,
) -> Terms:
    """Look up the terms of a question. Stop words count only in quotes, or where there is nothing else.

    With ``syntax``, quotes and stars mean phrases and prefixes; else they are punctuation. ``chunks`` is how many
    there are, ``dictionary`` their terms and ``stops`` the stop words; those of the file unless given.
    """
    dictionary = FileDictionary(con) if dictionary is None else dictionary
    if chunks is None:
        chunks = con.execute("SELECT count(*) FROM documents").fetchall()[0][0]
    question = asked(con, query_text, stemmer, syntax=syntax, stops=stops)
    quoted, prefixes = question.phrases, question.prefixes
    in_quotes = {stem_word(word, stemmer) for phrase in quoted for word in phrase}
    wanted = sorted(question.stems.keys() | in_quotes)
    found = dictionary.look_up(wanted)
    unknown = _unknown(dictionary, question, {term for term, _, _ in found})
    terms = Terms(
        [termid for _, termid, _ in found],
        [df for _, _, df in found],
        len(wanted),
        asked=question,
        unknown=unknown,
        weights={term: idf(df, chunks) for term, _, df in found},
    )
    if not quoted and not prefixes:
        return terms
    number = {term: clause for clause, term in enumerate(wanted)}
    terms.texts.extend(wanted)
    terms.clauses.extend(number[term] for term, _, _ in found)
    terms.required.extend(number[term] for term in wanted if conjunctive or term in in_quotes)
    # A run without blanks that is shorter than the words of the texts is no plain word there; as a term it is exact.
    runs = _patterns()[1]
    terms.phrases.extend(
        f" {' '.join(phrase)} " for phrase in quoted if len(phrase) > 1 or not runs.fullmatch(phrase[0])
    )
    # A longer one first: a chunk that matches it also matches a shorter one that shares its terms.
    terms.prefixes.extend(sorted(prefixes, key=lambda word: (-len(word), word)))
    for clause, prefix in enumerate(terms.prefixes, len(wanted)):
        _add_prefix(dictionary, terms, prefix, clause, required=conjunctive)
    return terms


# Looking for the words that are near one takes some milliseconds in a large file; further ones get none.
_MOST_NEAR = 4


def _unknown(dictionary: Dictionary, question: Asked, found: set[str]) -> dict[str, list[str]]:
    """Return the words that no chunk holds, with the nearest that some does: no runs, no compound names."""
    runs = _patterns()[1]
    words = [word for stem, words in question.stems.items() if stem not in found for word in words]
    words = [word for word in words if "_" not in word and not runs.match(word)]
    near: dict[str, list[str]] = {word: [] for word in words}
    for word in [word for word in words if len(word) > 3 and word.isalpha()][:_MOST_NEAR]:
        near[word] = [other for _, _, other in dictionary.nearest(word, 1 if len(word) < 6 else 2)]
    return near


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
    if required and len(new) == len(rows):  # else another required word covers it
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


MACROS = (
    *("visible", "fold", "composed", "compound_parts", "run_pairs", "run_characters", "plain_words", "heading_text"),
    *("tokenize", "holds_phrases"),
)


# By their stop words.
_in_memory: dict[frozenset[str] | None, duckdb.DuckDBPyConnection] = {}


def _after_fork() -> None:
    """Leave the parent's databases as they are: to end one would wait for threads that are not here."""
    for con in _in_memory.values():
        keep(con)
    _in_memory.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def word_macros(stops: frozenset[str] | None = None) -> duckdb.DuckDBPyConnection:
    """Return a database in memory with the macros of a new store; each use takes a cursor of it.

    ``stops`` are its stop words. None: those of a new store.
    """
    if stops not in _in_memory:
        _in_memory[stops] = _with_macros(stops)
    return _in_memory[stops]


def _with_macros(stops: frozenset[str] | None) -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": 1})
    con.execute(read_sql("lexical_index"))
    for name in MACROS:
        con.execute(read_sql(f"macros/{name}"))
    if stops is not None:
        set_stop_words(con, sorted(stops))
    return con


def set_stop_words(con: duckdb.DuckDBPyConnection, words: Sequence[str]) -> None:
    """Give a store its stop words."""
    con.execute("DELETE FROM fts_main_documents.stopwords")
    con.execute("INSERT INTO fts_main_documents.stopwords SELECT unnest($1::VARCHAR[])", [list(words)])


def words_of(texts: Sequence[str]) -> list[list[str]]:
    """Return the words of each text, in their order, folded; runs without blanks give their grams and parts."""
    texts = [without_surrogates(text) for text in texts]
    other = [text for text in texts if not text.isascii()]
    rows = (
        word_macros().cursor().execute(read_sql("index/tokenize_texts"), {"texts": other}).fetchall() if other else []
    )
    tokenized = iter(rows)
    return [[*ascii_words(text), *ascii_parts(text)] if text.isascii() else next(tokenized)[0] for text in texts]


def terms_of(texts: Sequence[str], stemmer: str) -> list[list[str]]:
    """Return the terms that the words of each text count as."""
    words = words_of(texts)
    distinct = list(dict.fromkeys(word for text in words for word in text))
    term = dict(zip(distinct, stem_words(distinct, stemmer), strict=True))
    return [[term[word] for word in text] for text in words]


def stems_of_query(query: str, stemmer: str) -> list[str]:
    """Return the distinct terms of a question; stop words count only where there is nothing else."""
    words = list(dict.fromkeys(words_of([query])[0]))
    stops = stop_words(word_macros().cursor())
    return list(dict.fromkeys(stem_words([word for word in words if word not in stops] or words, stemmer)))


Span = tuple[int, int]

# Vowels and final consonants of Hangul and the voiced marks of half-width Kana compose with what stands before them,
# though they are not marks, also where a character without width stands between them.
_JOINING = re.compile(
    "[\u1160-\u11ff\ud7b0-\ud7ff\u314f-\u3163\uffc2-\uffdc\uff9e\uff9f\u00ad\u200b-\u200f\u2060-\u206f\ufeff]"
)

_WITHOUT_WIDTH = re.compile("[\u00ad\u200b-\u200f\u2060-\u206f\ufeff]+$")

_SPELL = {
    "fold": "SELECT list_transform($texts, lambda text: fts_main_documents.fold(text))",
    "composed": "SELECT list_transform($texts, lambda text: fts_main_documents.composed(text))",
}

_SHARP_S = re.compile("(?<=[A-Z]{2})ß")

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
    """Return the same for a question that has been split; ``con`` needs the macros of a store, not the store."""
    return [_merged(span for span, _ in found) for found in _words_asked(con, question, texts, stemmer)]


def _words_asked(
    con: duckdb.DuckDBPyConnection, question: Asked, texts: Sequence[str], stemmer: str
) -> list[list[tuple[Span, str]]]:
    """Return every place of a word that counts, with what it counts as: a term, or the beginning of words.

    That of a stop word in a phrase is "". Those of a text are in no order.
    """
    texts = [without_surrogates(text) for text in texts]  # as many characters as before
    words = [
        list(watched(_words_of(text, composed))) for text, composed in zip(texts, _composed(con, texts), strict=True)
    ]
    folded = _spelled(con, "fold", (word.text for found in words for word in found))
    wanted = _wanted(con, question, set(folded.values()), stemmer)
    return [
        [
            *((word.span, wanted[folded[word.text]]) for word in found if folded[word.text] in wanted),
            *((span, "") for span in _in_phrases(found, folded, question.phrases)),
        ]
        for found in words
    ]


def marks(question: Asked, stemmer: str, texts: Sequence[str]) -> list[list[Span]]:
    """Return what :func:`spans_of` does without a store."""
    return spans_of(word_macros().cursor(), question, texts, stemmer)


def weighed_words(
    query_text: str, question: Asked | None, weights: Mapping[str, float], stemmer: str, texts: Sequence[str]
) -> list[list[WeighedWord]]:
    """Return each place of a word of the question, in order, with its weight and what it counts as; needs no store.

    Without ``question``, ``query_text`` is split here, as plain words. What has no weight in ``weights``, such as a
    beginning of words, weighs as much as the rarest word.
    """
    con = word_macros().cursor()
    question = asked(con, query_text, stemmer) if question is None else question
    most = max(weights.values(), default=1.0)
    return [
        sorted(WeighedWord(*span, term, weights.get(term, most) if term else 0.0) for span, term in words)
        for words in _words_asked(con, question, texts, stemmer)
    ]


def _wanted(con: duckdb.DuckDBPyConnection, question: Asked, words: set[str], stemmer: str) -> dict[str, str]:
    """Return those of the words that count wherever they stand, with what each counts as.

    Stop words in quotes only count in their phrase.
    """
    quoted = {word for phrase in question.phrases for word in phrase}
    quoted -= stop_words(con) if quoted else set()
    stems = {*question.stems, *stem_words(sorted(quoted), stemmer)}
    found = sorted(words)
    by_stem = {word: stem for word, stem in zip(found, stem_words(found, stemmer), strict=True) if stem in stems}
    prefixes = tuple(question.prefixes)
    begun = [word for word in (watched(found) if prefixes else ()) if word.startswith(prefixes)]
    return {word: next(filter(word.startswith, prefixes)) for word in begun} | by_stem


def _in_phrases(found: list[_Word], folded: dict[str, str], phrases: list[list[str]]) -> Iterator[Span]:
    """Yield the words of each place where those of a phrase follow each other."""
    plain = [word for word in found if word.plain] if phrases else []
    # Each word is one character, so that Python's search for a string finds phrases, in linear time.
    letters = {word: chr(number) for number, word in enumerate(sorted({w for phrase in phrases for w in phrase}), 1)}
    written = "".join(letters.get(folded[word.text], "\0") for word in plain)
    for phrase in dict.fromkeys("".join(letters[word] for word in phrase) for phrase in phrases):
        # A phrase that repeats itself, such as "a a a", may overlap itself: its repeats are followed, not searched.
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
    texts = [_SHARP_S.sub("ẞ", text) for text in texts]  # as the macro does, which here sees one character at a time
    whole = _spelled(con, "composed", texts)
    parts = {text: _clusters(text) for text in texts if whole[text] != text}
    single = _spelled(con, "composed", (part for text in parts for part in parts[text]))
    found = []
    for text in texts:
        origins: list[Span] | None = [] if text in parts else None
        done = 0
        for part in parts.get(text, ()):
            assert origins is not None  # noqa: S101 - set where there are parts
            # What has no width belongs to the character before, but not at its end, where markup may be hidden.
            origins += [(done, done + len(_WITHOUT_WIDTH.sub("", part)))] * len(single[part])
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
        yield from _parts(composed, ASCII_NAME)
        return
    plain, runs, names = _patterns()
    yield from (composed.word(*found.span()) for found in plain.finditer(composed.text))
    places = [found.span() for found in runs.finditer(composed.text)]
    for start, end in places:
        size = _gram_size(composed.text[start])
        yield from (composed.word(at, min(at + size, end)) for at in range(start, max(start, end - size) + 1))
    for start, end in places:
        for size in range(1, min(_gram_size(composed.text[start]), end - start)):
            yield from (composed.word(at, at + size, plain=False) for at in range(start, end - size + 1))
    yield from _parts(composed, names)


def _gram_size(character: str) -> int:
    """Return how many characters of a run without blanks are a word, as in ``run_pairs.sql``, by its first one."""
    return 3 if "\u0e00" <= character <= "\u109f" or "\u1780" <= character <= "\u17ff" else 2


def _parts(composed: _Composed, names: re.Pattern[str]) -> Iterator[_Word]:
    """Yield the parts of compound names."""
    known: dict[str, list[str]] = {}
    for name in names.finditer(composed.text):
        written = name[0]
        if written not in known:
            known[written] = compound_parts(written) if COMPOUND.search(written) else []
        end = name.start()
        for part in known[written]:
            start = composed.text.index(part, end)
            end = start + len(part)
            yield composed.word(start, end, plain=False)


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
