"""The two legs of a search in DuckDB: each calls its macro and returns ranked hits; feedback changes both."""

from __future__ import annotations

import json
import math
from collections import Counter
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from sqlrag.engines.duckdb.lexical import FileDictionary, stem_word, stop_words, tokenize
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.duckdb.statements import call_macro, select_by_key
from sqlrag.normalize import json_pointer
from sqlrag.ranking.filters import check_dates
from sqlrag.ranking.fusion import SAMPLE, Leg, LegHit
from sqlrag.ranking.terms import boosted, idf
from sqlrag.ranking.vectors import query_code, unit_vector

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.ranking.filters import Filters
    from sqlrag.ranking.fusion import ExactScores
    from sqlrag.ranking.plan import BM25
    from sqlrag.ranking.terms import Dictionary, Terms
    from sqlrag.types import Vectors

# Up to this many postings all are scored; beyond, common terms are looked up only where they matter. Two more
# statements have to be planned for that, which costs 8 ms; scoring 200,000 postings takes as long.
PRUNE_FROM = 200_000

# The rarest terms, with no more postings than this in all, give a lower bound of the best chunks' scores.
_PROBE = 30_000


def default_pool(chunks: int, dimensions: int, k: int = 50) -> int:
    """Return how many candidates of the sign codes get exact cosines in a store of so many chunks.

    Chosen for a recall@10 of .99 and more, on real questions and on vectors without any structure: 750 up to 100,000
    chunks (as in the macros), 3,000 at a million; more where a code has fewer than 384 bits or more than 125 chunks are
    wanted. The handbook has the curves.
    """
    return round(max(750.0, 6.0 * k, 0.75 * math.pow(chunks, 0.6)) * max(1.0, 384 / dimensions))


def vector_leg(
    con: duckdb.DuckDBPyConnection,
    vector: NDArray[np.float32],
    k: int,
    filters: dict[str, Any],
    *,
    pool: int | None,
    chunks: int,
) -> Leg:
    """Return the ``k`` chunks nearest to ``vector``, ``[dimensions] float32`` of unit norm, by cosine.

    ``pool`` is the number of candidates of the sign codes; None: compare every vector. ``chunks``: those of the file.
    """
    options: dict[str, Any] = {"k": k, **filters}
    arguments: dict[str, Any] = {"query_vector": as_text(vector)}
    if pool is None:
        return _leg(con, "exact_vector_search", arguments, options, "exact: every vector compared")
    asked, pool = pool, max(pool, k)
    options["pool"] = pool
    arguments.update({name: str(words) for name, words in query_code(vector)._asdict().items()})
    leg = _leg(con, "vector_search", arguments, options, method_of(chunks, pool, filters))
    leg.pool = asked
    return leg


def method_of(chunks: int, pool: int, filters: Mapping[str, Any]) -> str:
    """Return in words how a search with a pool of the sign codes compares vectors."""
    if chunks <= pool:
        return f"exact: the pool of {pool:,} holds every chunk"
    method = f"sign codes, then the exact cosines of the best {pool:,}"
    return f"{method}; exact if the filters leave no more" if filters else method


class Share(NamedTuple):
    """What a search in one of several files knows of all: the terms of its question have document frequencies of all.

    ``totals`` are those of ``bm25_contributions.sql``, ``postings`` how many postings of the terms the file has, and
    every ``nth`` chunk is sampled.
    """

    totals: Sequence[float]
    postings: int = 0
    nth: int = 1


def lexical_leg(
    con: duckdb.DuckDBPyConnection,
    terms: Terms,
    k: int,
    bm25: BM25,
    filters: dict[str, Any],
    *,
    conjunctive: bool = False,
    of: Share | None = None,
) -> Leg:
    """Return the ``k`` chunks that hold ``terms`` with the highest BM25, in one of several files with its share."""
    if nothing_to_look_for(terms, conjunctive=conjunctive):
        return Leg(method=NOTHING)
    arguments: dict[str, Any] = {"termids": terms.termids, "dfs": terms.dfs}
    options: dict[str, Any] = {"k": k, **bm25.parameters()}
    if of is not None:
        options["totals"] = of.totals
    if terms.clauses:
        arguments.update(clauses=terms.clauses, required=terms.required, phrases=terms.phrases)
        return _leg(con, "clause_search", arguments, {**options, **filters}, "words, phrases and prefixes as asked")
    if terms.boosts:
        options["boosts"] = terms.boosts
    if conjunctive:
        options["at_least"] = terms.wanted
    plain = conjunctive or filters or terms.boosts
    if plain or (of.postings if of else sum(terms.dfs)) < PRUNE_FROM:
        return _leg(con, "lexical_search", arguments, {**options, **filters}, "every posting scored")
    return _pruned(con, terms, options)


NOTHING = "nothing to look for"


def nothing_to_look_for(terms: Terms, *, conjunctive: bool) -> bool:
    """Return whether no chunk can hold what is asked for."""
    lacks_some = conjunctive and not terms.clauses and len(terms.termids) < terms.wanted
    return not terms.termids or terms.unreachable or lacks_some


def _pruned(con: duckdb.DuckDBPyConnection, terms: Terms, options: dict[str, Any]) -> Leg:
    """Score as MaxScore does: the most common terms only where they can still bring a chunk among the best k."""
    rarest = sorted(zip(terms.dfs, terms.termids, strict=True))
    probed = max(1, sum(total <= _PROBE for total in accumulate(df for df, _ in rarest)))
    common, bound = 0, 0.0
    if probed < len(rarest):
        dfs, termids = zip(*rarest[:probed], strict=True)
        probe = {"termids": list(termids), "dfs": list(dfs)}
        reached, num_docs = call_macro(con, "reached, num_docs", "score_floor", probe, options)[0]
        for df, _ in reversed(rarest[1:]):
            # 1e-6 for the rounding of what is added up.
            most = (options["k1"] + 1) * idf(df, num_docs) + 1e-6
            if reached is None or bound + most >= reached:
                break
            common, bound = common + 1, bound + most
    split = len(rarest) - common
    groups = {
        f"{name}_{kind}": [pair[place] for pair in part]
        for name, part in (("rare", rarest[:split]), ("common", rarest[split:]))
        for place, kind in ((1, "termids"), (0, "dfs"))
    }
    method = f"MaxScore, {split} terms scored and {common} common ones looked up"
    return _leg(con, "pruned_search", {**groups, "common_bound": bound}, options, method)


def passing_filters(con: duckdb.DuckDBPyConnection, filters: Filters) -> dict[str, Any]:
    """Return the filters in the form of the searches: the conditions on metadata as a bit for each chunk."""
    named = filters.parameters()
    metadata = named.pop("metadata", None)
    if metadata is not None:
        check_dates(filters, partial(date_fields, con))
        # "0" where there are no chunks at all; None would be no condition.
        named["passing"] = con.execute("SELECT passing_chunks($1)", [metadata]).fetchall()[0][0] or "0"
    return named


def any_passes(con: duckdb.DuckDBPyConnection, filters: dict[str, Any]) -> bool:
    """Return whether any chunk passes the filters, as :func:`passing_filters` returns them."""
    named: dict[str, Any] = dict.fromkeys(("collection", "tags_any", "tags_all", "passing"))
    statement = (
        "SELECT 1 FROM documents AS d WHERE passes(d.rid, d.collection, d.tags, "
        "$passing, $collection, $tags_any, $tags_all) LIMIT 1"
    )
    return bool(con.execute(statement, {**named, **filters}).fetchall())


def date_fields(
    con: duckdb.DuckDBPyConnection, names: Collection[str], collection: Sequence[str] | None
) -> dict[str, str]:
    """Return the fields, of these, whose texts in some collections are all ISO 8601 dates, each with the least."""
    return {name: rows[0][0] for name, rows in _of_fields(con, "date_field", names, collection) if rows}


def first_values(
    con: duckdb.DuckDBPyConnection, names: Collection[str], collection: Sequence[str] | None
) -> dict[str, Any]:
    """Return the value of each metadata field in the first chunk, of some collections, that has one."""
    return {name: json.loads(rows[0][0]) for name, rows in _of_fields(con, "first_value", names, collection) if rows}


def _of_fields(
    con: duckdb.DuckDBPyConnection, statement: str, names: Collection[str], collection: Sequence[str] | None
) -> Iterator[tuple[str, list[Any]]]:
    for name in names:
        named = {"place": json_pointer(name), "collection": collection}
        yield name, con.execute(read_sql(f"serving/{statement}"), named).fetchall()


def pair_scores(
    con: duckdb.DuckDBPyConnection,
    vector: NDArray[np.float32],
    terms: Terms,
    rids: Sequence[int],
    bm25: BM25,
    *,
    totals: Sequence[float] | None = None,
    nth: int | None = None,
    sample: list[tuple[float | None, float]] | None = None,
) -> ExactScores:
    """Return the exact cosine and BM25 of given chunks, by their ``rid``; ``totals`` as in :class:`Share`.

    With ``nth`` every so-manyth chunk that holds one of the terms is scored as well, for ``sample``.
    """
    arguments = {
        "termids": terms.termids,
        "dfs": terms.dfs,
        "query_vector": as_text(vector),
        "rids": list(rids),
    }
    options: dict[str, Any] = dict(bm25.parameters())
    if terms.boosts:
        options["boosts"] = terms.boosts
    if totals is not None:
        options["totals"] = totals
    if nth is not None:
        options["nth"] = nth
    rows = call_macro(con, "rid, vector_score, lexical_score, sampled", "pair_scores", arguments, options)
    if sample is not None:
        sample.extend((cosine, bm25) for _, cosine, bm25, sampled in rows if sampled)
    return {rid: (cosine, bm25) for rid, cosine, bm25, _ in rows}


def sampled_nth(terms: Terms, chunks: int) -> int:
    """Return which share of the chunks that hold one of the terms is a sample: one in so many, so that 300 are enough.

    How many hold one is not known before they are read: at most as many as there are ``chunks``, or postings. The terms
    of a clause, such as the words that ``word*`` stands for, have one document frequency together.
    """
    dfs = dict(zip(terms.clauses, terms.dfs, strict=True)).values() if terms.clauses else terms.dfs
    return max(1, -(-min(sum(dfs), chunks) // SAMPLE))


def as_text(vector: NDArray[np.float32]) -> str:
    """Return a vector as text: DuckDB binds a Python list element by element, which takes ten times as long."""
    return str(vector.tolist())


def _leg(
    con: duckdb.DuckDBPyConnection, macro: str, arguments: dict[str, Any], options: dict[str, Any], method: str
) -> Leg:
    rows = call_macro(con, "rid, doc_id, chunk_index, score, node_id", macro, arguments, options)
    return Leg(
        hits=[LegHit(rid, doc_id, chunk_index, score) for rid, doc_id, chunk_index, score, _ in rows],
        node_ids={row[0]: row[4] for row in rows},
        method=method,
    )


# The share of the added terms in an expanded question where the vectors are trusted and the words single out nothing,
# and the chunks they come from. With more, abstracts are found worse in every fusion.
EXPANSION_WEIGHT = 0.05

EXPANSION_CHUNKS = 10


def moved_vector(vector: NDArray[np.float32], vectors: Vectors, weight: float) -> NDArray[np.float32]:
    """Return the unit vector of ``(1 - weight) * vector + weight * mean`` of some chunks' vectors.

    Rocchio's method with the best chunks assumed relevant; damaged vectors are left out.
    """
    vectors = vectors[np.isfinite(vectors).all(axis=1)]
    if not len(vectors):
        return vector
    moved = (1 - weight) * unit_vector(vector, len(vector)) + weight * vectors.mean(axis=0)
    return unit_vector(moved, len(vector)) if np.linalg.norm(moved) > 1e-6 else vector


def expanded_terms(
    con: duckdb.DuckDBPyConnection, terms: Terms, node_ids: Sequence[str], count: int, weight: float, stemmer: str
) -> Terms:
    """Return the terms with the ``count`` most distinctive ones of chunks of a file added: :func:`with_distinctive`."""
    rows = select_by_key(con, "SELECT node_id, visible(text, shown) FROM documents WHERE node_id IN (...)", node_ids)
    num_docs = con.execute("SELECT num_docs FROM fts_main_documents.stats").fetchall()[0][0]
    dictionary = FileDictionary(con)
    return with_distinctive(con, terms, dict(rows), count, weight, stemmer, dictionary=dictionary, num_docs=num_docs)


def with_distinctive(
    con: duckdb.DuckDBPyConnection,
    terms: Terms,
    texts: Mapping[str, str],
    count: int,
    weight: float,
    stemmer: str,
    *,
    dictionary: Dictionary,
    num_docs: int,
) -> Terms:
    """Return the terms with the ``count`` most distinctive ones of chunks, given by their ``node_id``, added.

    ``weight`` is the share that they have together, 0..1.

    RM3 (Abdul-Jaleel et al., UMass at TREC 2004): a term counts by its share of each chunk's words, chunks alike. Those
    whose share times idf is greatest are added; BM25 itself multiplies by the idf, which must not count twice.
    """
    stops = stop_words(con)
    shares: Counter[str] = Counter()
    for _, text in sorted(texts.items()):
        stems = [stem_word(word, stemmer) for word in tokenize(con, text) if word not in stops]
        shares.update({stem: number / len(stems) for stem, number in Counter(stems).items()})
    found = dictionary.look_up(sorted(shares))
    weighed = [(-shares[term] * idf(df, num_docs), term, termid, df) for term, termid, df in found]
    best = sorted(weighed)[:count]
    total = sum(shares[term] for _, term, *_ in best)
    return boosted(terms, [(termid, df, shares[term] / total) for _, term, termid, df in best], weight)
