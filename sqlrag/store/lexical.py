"""Keeps the lexical index in step with the chunks; its statements are in ``sql/index``."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import pyarrow as pa

from sqlrag.errors import InputError
from sqlrag.options import shown
from sqlrag.store.schema import read_sql, run_script

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

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
    """Return the term that each word counts as."""
    if stemmer == "none":
        return list(words)
    import Stemmer

    stems: list[str] = Stemmer.Stemmer(stemmer).stemWords(list(words))
    return stems


@lru_cache(maxsize=4096)
def stem_word(word: str, stemmer: str) -> str:
    """Return the term that one word of a query counts as."""
    return stem_words([word], stemmer)[0]


def add_chunks(con: duckdb.DuckDBPyConnection, first: int, stemmer: str) -> None:
    """Index the chunks whose ``rid`` is ``first`` or more, inside the caller's transaction."""
    run_script(con, "index/choose_new", first=first)
    run_script(con, "index/stage_tokens")
    words = [row[0] for row in con.execute(read_sql("index/new_words")).fetchall()]
    if words:
        new_words = pa.table({"word": words, "term": stem_words(words, stemmer)})
        con.register("new_words", new_words)
        con.execute(read_sql("index/insert_words"))
        con.unregister("new_words")
    run_script(con, "index/add_chunks")


def remove_documents(con: duckdb.DuckDBPyConnection, doc_ids: Sequence[str]) -> None:
    """Take every chunk of these documents out of the table and the index, inside the caller's transaction."""
    run_script(con, "index/choose_documents", doc_ids=list(doc_ids))
    run_script(con, "index/stage_tokens")
    run_script(con, "index/remove_chunks")


def rebuild(con: duckdb.DuckDBPyConnection, stemmer: str) -> None:
    """Index every chunk afresh, inside the caller's transaction."""
    run_script(con, "index/clear")
    add_chunks(con, 0, stemmer)
