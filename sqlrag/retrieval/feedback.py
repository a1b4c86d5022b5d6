"""Pseudo-relevance feedback: what the best chunks of a first search tell about what was meant."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from sqlrag.retrieval.terms import FileDictionary, boosted, idf, stop_words, tokenize
from sqlrag.store.calls import select_by_key
from sqlrag.store.lexical import stem_word
from sqlrag.store.vectors import unit_vector

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.retrieval.terms import Dictionary, Terms
    from sqlrag.types import Vectors

# The share of the added terms in an expanded question, and the chunks that they are taken from.
EXPANSION_WEIGHT = 0.5
EXPANSION_CHUNKS = 10


def moved_vector(vector: NDArray[np.float32], vectors: Vectors, weight: float) -> NDArray[np.float32]:
    """Return the unit vector of ``(1 - weight) * vector + weight * mean`` of some chunks' vectors.

    Rocchio's method with the best chunks taken for relevant; damaged vectors are left out.
    """
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    if not len(vectors):
        return vector
    moved = (1 - weight) * unit_vector(vector, len(vector)) + weight * vectors.mean(axis=0)
    return unit_vector(moved, len(vector)) if np.linalg.norm(moved) > 1e-6 else vector


def expanded_terms(
    con: duckdb.DuckDBPyConnection, terms: Terms, node_ids: Sequence[str], count: int, stemmer: str
) -> Terms:
    """Return the terms with the ``count`` most telling ones of chunks of a file added: :func:`with_telling`."""
    rows = select_by_key(con, "SELECT node_id, text FROM documents WHERE node_id IN (...)", node_ids)
    num_docs = con.execute("SELECT num_docs FROM fts_main_documents.stats").fetchall()[0][0]
    return with_telling(con, terms, dict(rows), count, stemmer, dictionary=FileDictionary(con), num_docs=num_docs)


def with_telling(
    con: duckdb.DuckDBPyConnection,
    terms: Terms,
    texts: Mapping[str, str],
    count: int,
    stemmer: str,
    *,
    dictionary: Dictionary,
    num_docs: int,
) -> Terms:
    """Return the terms with the ``count`` most telling ones of chunks, given by their ``node_id``, added.

    RM3 (Abdul-Jaleel et al., UMass at TREC 2004): a term counts by its share of each chunk's words, chunks alike, times
    its idf here, since stop words are in the index.
    """
    stops = stop_words(con)
    shares: Counter[str] = Counter()
    for _, text in sorted(texts.items()):
        stems = [stem_word(word, stemmer) for word in tokenize(con, text) if word not in stops]
        shares.update({stem: number / len(stems) for stem, number in Counter(stems).items()})
    found = dictionary.look_up(sorted(shares))
    weighed = [(-shares[term] * idf(df, num_docs), term, termid, df) for term, termid, df in found]
    best = sorted(weighed)[:count]
    total = sum(weight for weight, *_ in best)
    return boosted(terms, [(termid, df, weight / total) for weight, _, termid, df in best if total], EXPANSION_WEIGHT)
