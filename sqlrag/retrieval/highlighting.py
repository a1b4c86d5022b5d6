"""Mark the words of a question in texts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlrag.retrieval.querying import opened_any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.types import AnyStore


def highlight(
    query_text: str, texts: Sequence[str], db_path: AnyStore, *, syntax: bool = True
) -> list[list[tuple[int, int]]]:
    """Find the words of texts that match those of a question, as the lexical index of the file sees both.

    So ``Cafés`` matches ``cafe``, ``pools`` matches ``pool`` with the file's stemmer, and ``pool`` a part of
    ``ConnectionPool``. Stop words count where the question has no other words, and within a phrase that stands in the
    text as it is asked for. Of scripts without blanks, such as Han, pairs of characters match.

    Parameters
    ----------
    query_text
        The question.
    texts
        Any texts: those of results, titles, whole documents.
    db_path
        The file, or an open :class:`Store`.
    syntax
        Read quotes and stars in the question as :func:`lexical_query` does. False: as punctuation, which is what
        :func:`hybrid_query` does unless told otherwise.

    Returns
    -------
    list
        For each of ``texts`` a list of ``(start, end)``, characters of it: ``text[start:end]`` is the word. Sorted,
        without overlap; words that touch are one span. Empty where nothing matches.

    Raises
    ------
    InputError
        The question is blank, or ``texts`` is no list of strings.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError
        The file cannot be used.

    Examples
    --------
    >>> highlight("How do I fill a pool?", ["Filling the ConnectionPool."], "kb.duckdb")  # doctest: +SKIP
    [[(0, 7), (22, 26)]]
    """
    with opened_any(db_path) as store:
        return store.highlight(query_text, texts, syntax=syntax)
