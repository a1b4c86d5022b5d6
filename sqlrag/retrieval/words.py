"""The words of a text as the lexical index has them, without a store."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import duckdb

from sqlrag.embedders.base import without_surrogates
from sqlrag.retrieval.terms import ascii_parts, ascii_words, stop_words
from sqlrag.store.lexical import stem_words
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    from collections.abc import Sequence

MACROS = ("fold", "compound_parts", "run_pairs", "run_characters", "composed", "plain_words", "tokenize")


@cache
def word_macros() -> duckdb.DuckDBPyConnection:
    """Return a database in memory with the macros and stop words of a new store; each use takes a cursor of it."""
    con = duckdb.connect(config={"threads": 1})
    con.execute(read_sql("lexical_index"))
    for name in MACROS:
        con.execute(read_sql(f"macros/{name}"))
    return con


def words_of(texts: Sequence[str]) -> list[list[str]]:
    """Return the words of each text, in their order, folded; runs without blanks give their pairs and characters."""
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


def query_terms(query: str, stemmer: str) -> list[str]:
    """Return the distinct terms of a question; stop words count only where there is nothing else."""
    words = list(dict.fromkeys(words_of([query])[0]))
    stops = stop_words(word_macros().cursor())
    return list(dict.fromkeys(stem_words([word for word in words if word not in stops] or words, stemmer)))
