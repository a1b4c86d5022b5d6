"""Analytics of text over tables and documents: joins by meaning, duplicates, clusters, classes, terms and trends."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlrag import arguments
from sqlrag.arguments import choice, counted, flag, not_blank, number, shown, whole
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.legs import as_text, passing_filters
from sqlrag.engines.duckdb.schema import for_dimensions, read_sql
from sqlrag.engines.duckdb.statements import identifier, quoted, register
from sqlrag.errors import InputError, ModelMismatchError
from sqlrag.explore.embedded_rows import EmbeddedRows, field_meant, rows_of
from sqlrag.explore.map import as_spelled, default_clusters, k_means, principal_components
from sqlrag.explore.nearest import Distinct, as_cosines, lengths, near, nearest
from sqlrag.explore.points import Analysis
from sqlrag.normalize import json_pointer, without_surrogates
from sqlrag.ranking.filters import Filters
from sqlrag.ranking.vectors import as_numbers, checked_vector, unit_vectors
from sqlrag.search.open import open_file
from sqlrag.search.searcher import why_nothing_passes

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import ArrayLike, NDArray

    from sqlrag.search.store import Store
    from sqlrag.types import Vectors

    Rows = EmbeddedRows | str | os.PathLike[str] | Store

PERIODS = {"day": "1 day", "week": "7 days", "month": "1 month", "quarter": "3 months", "year": "1 year"}

_MOST_PERIODS = 100_000

_PROBES = 16

_MOST_CLUSTERS = 1000

_BLOCK = 8192  # vectors converted to float64 at a time

_WORDS = 3  # of a label

_NO_LABEL_WORD = re.compile(r"[\d_]+|.")

_MEMORY = "1GB"

# Read from texts by these macros, each after those that it calls.
_TOKENIZER = ("fold", "composed", "run_pairs", "plain_words")


@public
def semantic_join(
    left: Rows,
    right: Rows,
    *,
    k: int = 1,
    threshold: float = -1,
    exact: bool = True,
    probes: int = _PROBES,
) -> Analysis:
    """Join two tables by meaning: the nearest rows of ``right`` for each row of ``left``.

    Parameters
    ----------
    left, right
        What :func:`embed_rows` returned for a table, a query or a file; or a file of sqlrag, whose rows are its chunks.
        Both have to be of one model.
    k
        How many rows of ``right`` for each of ``left``, 1 or more; all of them where it has no more than that.
    threshold
        The least cosine, -1..1. A row of ``left`` without any such row is not in the result.
    exact
        True: all pairs are compared. False: by codes. A vector's code is the number of its nearest of as many centroids
        as the root of the number of rows in ``right``; each row of ``left`` is compared with the rows of the ``probes``
        nearest codes, exactly.
    probes
        How many codes are searched by ``exact=False``, 1 or more.

    Returns
    -------
    Analysis
        ``left_key``, ``right_key``, ``score`` (cosine, 9 decimals) and ``rank`` (from 1), in the order of the rows of
        ``left``, the highest score first; of equal ones, the earlier row of ``right``. Whatever the number of threads.

    Raises
    ------
    InputError
        An option is out of range, or more than 20 million pairs would be found.
    ModelMismatchError
        The vectors are of different models or lengths.

    Notes
    -----
    Blocks of products in float32 choose the pairs that may be wanted, with a margin of the greatest rounding error;
    their scores are then computed in float64 from the unit vectors in float32. So the result equals that of numpy in
    float64, and scores differ from those of unrounded vectors by less than 1e-6. Memory beside the rows: 150 MB, and
    24 bytes a pair. Of 384 dimensions, 10,000 with 10,000 rows took 1.6 CPU seconds, and 100,000 with 100,000 would
    take about 150; by codes these took 21. Of the nearest of 22,000 chunks of documentation, 16 probes found .966, and
    of the ten nearest .948; 32 probes .990 and .981. Sign codes, which a search uses, are no faster in numpy than the
    products themselves.

    Examples
    --------
    >>> from sqlrag import embed_rows
    >>> left = embed_rows("SELECT 7 AS id, [3.0, 4.0] AS v", key="id", vector="v")
    >>> right = embed_rows("FROM (VALUES ('a', [1.0, 0.0]), ('b', [0.0, 1.0])) AS t(id, v)", key="id", vector="v")
    >>> semantic_join(left, right)[0]
    {'left_key': 7, 'right_key': 'b', 'score': 0.799999993, 'rank': 1}
    """
    k = whole("k", k, 1)
    threshold = number("threshold", threshold, -1, 1)
    probes = whole("probes", probes, 1)
    one, two = rows_of("left", left), rows_of("right", right)
    one.check_same_model(two)
    found = nearest(one.vectors, two.vectors, k, threshold, None if flag("exact", exact) else probes)
    begins = np.searchsorted(found.left, found.left)
    columns = {
        "left_key": one.keys.take(pa.array(found.left)),
        "right_key": two.keys.take(pa.array(found.right)),
        "score": pa.array(found.scores),
        "rank": pa.array(np.arange(len(begins)) - begins + 1, pa.int32()),
    }
    return Analysis(pa.table(columns), [*one.notices, *two.notices])


@public
def near_duplicates(
    rows: Rows,
    *,
    threshold: float = 0.95,
    level: Literal["pair", "row"] = "pair",
    exact: bool = True,
    probes: int = 4,
) -> Analysis:
    """Find rows that are nearly the same, as pairs or as groups.

    Parameters
    ----------
    rows
        What :func:`embed_rows` returned, or a file of sqlrag, whose rows are its chunks.
    threshold
        The least cosine of a pair, -1..1.
    level
        "pair": the pairs. "row": the rows that are in a pair, by groups that pairs connect.
    exact
        False: only rows are compared whose codes are near, see :func:`semantic_join`.
    probes
        How many codes are searched by ``exact=False``, 1 or more.

    Returns
    -------
    Analysis
        For pairs: ``key``, ``other_key``, ``score`` and ``group``, the highest score first, then in the order of the
        rows. Copies of one vector are paired with the first of them alone, and only the first with other rows. For
        rows: ``group``, ``key``, ``is_first`` and ``size``; groups are numbered by their size, the largest 0, then by
        their first row. To keep one row of each group, drop those that are not ``is_first``.

    Raises
    ------
    InputError
        An option is out of range, or more than 20 million pairs reach the threshold.

    Notes
    -----
    Scores and memory are those of :func:`semantic_join`. Where few pairs are near, most are told apart by 49 numbers
    each instead of all dimensions, by an upper bound of the cosine that misses none: 100,000 rows of 384 dimensions
    took 20 CPU seconds so, and by codes 11; at a threshold that many pairs come near to, all products take about 75.

    Examples
    --------
    >>> from sqlrag import embed_rows
    >>> near_duplicates(embed_rows("SELECT unnest([[1.0, 0.1], [0.0, 1.0], [1.0, 0.0]]) AS v", vector="v"))[0]
    {'key': 0, 'other_key': 2, 'score': 0.99503719, 'group': 0}
    """
    threshold = number("threshold", threshold, -1, 1)
    choice("level", level, ("pair", "row"))
    probes = whole("probes", probes, 1)
    table = rows_of("rows", rows)
    copies = Distinct.of(table.vectors)
    firsts = copies.rows[copies.starts[:-1]]
    found = near(copies.vectors, threshold, None if flag("exact", exact) else probes)
    repeated = np.setdiff1d(np.arange(len(table)), firsts)
    one = np.concatenate([firsts[found.left], firsts[copies.of_row[repeated]]])
    two = np.concatenate([firsts[found.right], repeated])
    scores = np.concatenate([found.scores, np.ones(len(repeated))])
    groups = _groups(len(table), one, two)
    if level == "pair":
        order = np.lexsort((two, one, -scores))
        columns = {
            "key": table.keys.take(pa.array(one[order])),
            "other_key": table.keys.take(pa.array(two[order])),
            "score": pa.array(scores[order]),
            "group": pa.array(groups[one[order]], pa.int32()),
        }
        return Analysis(pa.table(columns), table.notices)
    members = np.flatnonzero(groups >= 0)
    members = members[np.argsort(groups[members], kind="stable")]
    numbers, starts, sizes = np.unique(groups[members], return_index=True, return_counts=True)
    columns = {
        "group": pa.array(groups[members], pa.int32()),
        "key": table.keys.take(pa.array(members)),
        "is_first": pa.array(np.isin(np.arange(len(members)), starts)),
        "size": pa.array(np.repeat(sizes, sizes) if len(numbers) else np.empty(0), pa.int32()),
    }
    return Analysis(pa.table(columns), table.notices)


class Clusters(Analysis):
    """The rows of a table with their clusters: ``key``, ``cluster``, ``label`` and ``score``.

    ``score`` is the cosine of the row and the mean of its cluster. ``sizes`` has the clusters, the largest first:
    ``cluster``, ``label``, ``count`` and ``share`` of all rows. ``periods`` has ``period`` (the date it begins with),
    ``cluster``, ``label``, ``count``, ``total`` of all clusters and ``share``, for each period from the first to the
    last; it is None where no date was named.
    """

    def __init__(
        self, table: pa.Table, notices: Sequence[str], sizes: Analysis, periods: Analysis | None = None
    ) -> None:
        super().__init__(table, notices)
        self.sizes = sizes
        self.periods = periods


@public
def cluster(
    rows: Rows,
    *,
    clusters: int | None = None,
    by: str | None = None,
    period: Literal["day", "week", "month", "quarter", "year"] = "month",
) -> Clusters:
    """Divide rows into clusters of similar meaning, label these by their distinctive words, count them by periods.

    Parameters
    ----------
    rows
        What :func:`embed_rows` returned, or a file of sqlrag, whose rows are its chunks.
    clusters
        Their number, 1 to 1000; there are fewer where rows coincide. None: the square root of half the number of rows,
        at most 16.
    by
        A column of dates or times to count by, one of the ``columns`` that were read; of a file ``created_at``,
        ``modified_at`` or a metadata field.
    period
        What is counted together; a week begins on Monday. Times with a zone are taken in UTC.

    Returns
    -------
    Clusters
        In the order of the rows; clusters are numbered by their size, the largest 0. A label has the three words with
        the highest z-scores of weighted log-odds against the other clusters, see :func:`distinctive_terms`, with a word
        counted once a row; it is empty where there are no texts.

    Raises
    ------
    InputError
        There is no such column, it has no dates, or an option is out of range.

    Notes
    -----
    k-means over the first 50 principal components, as for :func:`corpus_map`; it begins without chance, so the same
    rows give the same clusters. Memory beside the rows: 800 bytes a row, and 1 GB at most for the words in DuckDB.
    100,000 rows of 384 dimensions took 16 CPU seconds with their texts.

    Examples
    --------
    >>> from sqlrag import embed_rows
    >>> rows = embed_rows("SELECT unnest([[1.0, 0.1], [0.0, 1.0], [1.0, 0.0]]) AS v", vector="v")
    >>> [row["count"] for row in cluster(rows, clusters=2).sizes]
    [2, 1]
    """
    count = None if clusters is None else whole("clusters", clusters, 1, _MOST_CLUSTERS)
    choice("period", period, PERIODS)
    table = rows_of("rows", rows, () if by is None else [arguments.text("by", by)])
    moments, notes = (None, []) if by is None else _moments(table, by)
    vectors, width = table.vectors, table.vectors.shape[1]
    if len(table):
        scores = principal_components(lambda: _blocks(vectors), width)
        numbers = k_means(scores, count or default_clusters(len(table)))
    else:
        numbers = np.empty(0, np.int32)
    total = int(numbers.max(initial=-1)) + 1
    means = np.zeros((total, width))
    for start, block in zip(range(0, len(table), _BLOCK), _blocks(vectors), strict=True):
        for number_of in range(total):
            means[number_of] += block[numbers[start : start + _BLOCK] == number_of].sum(axis=0, dtype=np.float64)
    means /= np.maximum(lengths(means), 1e-12)[:, None]
    cosines = [np.empty(0)]
    for start, block in zip(range(0, len(table), _BLOCK), _blocks(vectors), strict=True):
        exact = block.astype(np.float64)
        products = np.einsum("ij,ij->i", exact, means[numbers[start : start + _BLOCK]])
        cosines.append(as_cosines(products / lengths(exact)))
    with duckdb.connect(config={"memory_limit": _MEMORY}) as con:
        labels = pa.array(_labels(con, table, numbers, total), pa.string())
        sizes = np.bincount(numbers, minlength=total)
        of_cluster = {"cluster": pa.array(np.arange(total), pa.int32()), "label": labels}
        shares = {"count": pa.array(sizes), "share": pa.array((sizes / max(1, len(table))).round(9))}
        periods = None
        if moments is not None:
            counted_rows = _by_period(con, moments, numbers, np.arange(total), period)
            columns = {name: counted_rows[name] for name in ("count", "total", "share")}
            kinds = counted_rows["kind"]
            named = {"period": counted_rows["period"], "cluster": kinds, "label": labels.take(kinds.combine_chunks())}
            periods = Analysis(pa.table({**named, **columns}))
    columns = {
        "key": table.keys,
        "cluster": pa.array(numbers, pa.int32()),
        "label": labels.take(pa.array(numbers)),
        "score": pa.array(np.concatenate(cosines)),
    }
    return Clusters(pa.table(columns), [*table.notices, *notes], Analysis(pa.table({**of_cluster, **shares})), periods)


@public
def classify(
    rows: Rows,
    labels: Sequence[str] | Mapping[str, Any],
    *,
    threshold: float = -1,
    margin: float = 0,
) -> Analysis:
    """Give each row the label that it is nearest to.

    Parameters
    ----------
    rows
        What :func:`embed_rows` returned, or a file of sqlrag, whose rows are its chunks.
    labels
        Texts, which are the labels and say what they mean: ``["billing", "late delivery"]``. Or a dict of labels to a
        text, to a list of examples, or to vectors ``[dimensions]`` or ``[n, dimensions]``. A label is represented by
        the mean of its vectors at length 1. Texts are embedded as documents by the model of the rows.
    threshold
        The least cosine, -1..1: rows below it get no label.
    margin
        The least difference to the cosine of the second label, 0..2: rows below it get no label.

    Returns
    -------
    Analysis
        ``key``, ``label`` (None below ``threshold`` or ``margin``), ``nearest`` (the nearest label in any case),
        ``score`` (its cosine), ``second`` and ``margin`` (the next label and the difference of the cosines; None where
        there is one label), in the order of the rows. Of equal labels the earlier one is the nearest.

    Raises
    ------
    InputError
        There is no label, one is blank or twice, an option is out of range, examples are missing, or the vectors of
        the rows were given, so that texts cannot be embedded.
    ModelMismatchError
        The vectors of a label have another length than those of the rows.
    ModelUnavailableError, MissingExtraError, ProviderError
        The texts cannot be embedded.

    Notes
    -----
    Cosines are computed in float64 in blocks and rounded to 9 decimals: 30 MB beside the rows and 8 bytes a row and
    label in a block. 100,000 rows of 384 dimensions and 10 labels took .3 CPU seconds.

    Examples
    --------
    >>> from sqlrag import embed_rows
    >>> rows = embed_rows("SELECT [3.0, 4.0] AS v", vector="v")
    >>> classify(rows, {"right": [1.0, 0.0], "up": [0.0, 1.0]})[0]["label"]
    'up'
    """
    threshold = number("threshold", threshold, -1, 1)
    margin = number("margin", margin, 0, 2)
    table = rows_of("rows", rows)
    names, means = _label_vectors(table, labels)
    named = pa.array(map(without_surrogates, names), pa.string())
    places = np.empty((2, len(table)), np.int64)
    scores = np.empty((2, len(table)))
    each = np.arange(_BLOCK)
    for start, block in zip(range(0, len(table), _BLOCK), _blocks(table.vectors), strict=True):
        exact = block.astype(np.float64)
        found = as_cosines(exact @ means.T / lengths(exact)[:, None])
        part = slice(start, start + len(block))
        for turn in range(min(2, len(names))):
            places[turn, part] = found.argmax(axis=1)
            scores[turn, part] = found[each[: len(block)], places[turn, part]]
            found[each[: len(block)], places[turn, part]] = -np.inf
    best = named.take(pa.array(places[0]))
    if len(names) > 1:
        differences = (scores[0] - scores[1]).round(9)
        second, between = named.take(pa.array(places[1])), pa.array(differences)
    else:
        differences = np.full(len(table), np.inf)
        second, between = pa.nulls(len(table), pa.string()), pa.nulls(len(table), pa.float64())
    is_sure = pa.array((scores[0] >= threshold) & (differences >= margin))
    columns = {
        "key": table.keys,
        "label": pc.if_else(is_sure, best, pa.scalar(None, pa.string())),
        "nearest": best,
        "score": pa.array(scores[0]),
        "second": second,
        "margin": between,
    }
    return Analysis(pa.table(columns), table.notices)


@public
def distinctive_terms(
    db_path: str | os.PathLike[str] | Store,
    group: Mapping[str, Any],
    against: Mapping[str, Any] | None = None,
    *,
    top_k: int = 20,
    prior: float = 500,
) -> Analysis:
    """Return the terms that set some chunks of a file apart from others, by weighted log-odds over the word index.

    Parameters
    ----------
    db_path
        The file, or an open :class:`Store`.
    group
        Filters that choose the chunks: ``collection``, ``tags_any``, ``tags_all``, ``metadata``, as for
        :func:`hybrid_query`.
    against
        The same for what they are compared with; a chunk of both counts for the group. None: all other chunks.
    top_k
        How many terms, 1 or more.
    prior
        How many words the prior weighs, more than 0. The greater, the more often a rare term has to occur.

    Returns
    -------
    Analysis
        ``term``, ``z``, ``log_odds``, ``count`` in the group and ``count_against``, the highest ``z`` first. A ``z`` of
        1.96 or more is improbable by chance (two sides, 5 in 100) for one term that was chosen before; among all terms
        of a file some reach it. Headings do not count, and stop words of the index are not shown. A term is shown as
        its most common word.

    Raises
    ------
    InputError
        There is no such filter, or no chunk passes ``group`` or ``against``.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be read.

    Notes
    -----
    The log-odds ratio of two groups with an informative Dirichlet prior, whose shares are those of all chunks, and its
    z-score: Monroe, Colaresi, Quinn 2008, "Fightin' Words: Lexical Feature Selection and Evaluation for Identifying the
    Content of Political Conflict", Political Analysis 16(4), section 3.5. It costs one pass over the postings.
    """
    top_k = whole("top_k", top_k, 1)
    if not number("prior", prior, 0, 1e12):
        raise InputError("prior must be more than 0: without it a term that one group lacks would be infinitely odd.")
    sides = {"group": group, "against": {} if against is None else against}
    chosen = {name: _filters(name, filters) for name, filters in sides.items()}

    def read(store: Store) -> pa.Table:
        con = store.cursor()
        options: dict[str, Any] = {}
        for name, prefix in (("group", ""), ("against", "against_")):
            found = dict.fromkeys(("passing", "collection", "tags_any", "tags_all"))
            options |= {prefix + key: value for key, value in (found | passing_filters(con, chosen[name])).items()}
        con.execute(read_sql("exploring/count_terms"), options)
        sizes = con.execute("SELECT sum(n), sum(against) FROM counted_terms").fetchall()[0]
        for name, size in zip(sides, sizes, strict=True):
            if not size:
                if not store._engine.any_passes(store._engine.passing_filters(chosen[name])):
                    raise InputError(why_nothing_passes(store._engine, chosen[name]))
                rest = " beside those of group" if name == "against" else ""
                raise InputError(f"No chunk of {store.path} with a word passes {name}={shown(sides[name])}{rest}.")
        table = con.sql(read_sql("exploring/log_odds"), params={"prior": float(prior)}).to_arrow_table()
        con.execute("DROP TABLE counted_terms")
        return table

    with open_file(db_path) as store:
        table = store._database.read(lambda: read(store))
    return Analysis(table.drop_columns(["grp"]).slice(0, top_k))


@public
def trend(
    question: str | ArrayLike,
    db_path: str | os.PathLike[str] | Store,
    *,
    threshold: float,
    by: str = "created_at",
    period: Literal["day", "week", "month", "quarter", "year"] = "month",
    collection: str | Sequence[str] | None = None,
    tags_any: Sequence[str] | None = None,
    tags_all: Sequence[str] | None = None,
    metadata: Mapping[str, Any] | None = None,
) -> Analysis:
    """Count the documents and rows of a file that are about a question, period by period.

    Parameters
    ----------
    question
        A text, or its vector ``[dimensions]``.
    db_path
        The file, or an open :class:`Store`, whose model is used.
    threshold
        The least cosine of the best chunk of a document, -1..1. How great it has to be depends on the model: look at
        the ``vector_score`` of results of :func:`vector_query` that are right, and of the first that are not.
    by
        When a document is counted: ``created_at`` (it was stored), ``modified_at`` (its file), or a metadata field with
        dates as ISO 8601 text, such as a column of :func:`index_rows`; a zone at its end is ignored.
    period
        What is counted together; a week begins on Monday.
    collection, tags_any, tags_all, metadata
        Only chunks that pass these filters, as for :func:`hybrid_query`.

    Returns
    -------
    Analysis
        ``period`` (the date it begins with), ``count``, ``total`` of all documents with chunks, and ``share`` (None
        where there are none), for each period from the first to the last. Documents without a date are left out, which
        a notice says.

    Raises
    ------
    InputError
        The question is blank, an option is out of range, no chunk passes the filters, or no document has such a date.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be read.
    ModelUnavailableError, MissingExtraError, ProviderError, ModelMismatchError
        The question cannot be embedded.

    Notes
    -----
    Every vector is compared, exactly, as by ``vector_query(exact=True)``: one pass over the vectors.
    """
    threshold = number("threshold", threshold, -1, 1)
    not_blank("by", by)
    choice("period", period, PERIODS)
    filters = Filters(collection, tags_any, tags_all, metadata)
    with open_file(db_path) as store:
        if isinstance(question, str):
            vector = store.query_vector(not_blank("question", question))
        else:
            vector = checked_vector(question, store.dimensions)
        found = store._database.read(lambda: _document_scores(store, vector, by, filters))
        if not len(found) and filters.parameters():
            raise InputError(why_nothing_passes(store._engine, filters))
        meant = partial(field_meant, store, by)
        notes = _check_moments(found["given"], found["moment"], by, f"document of {store.path}", meant)
    hits = (found["score"].to_numpy() >= threshold).astype(np.int32)
    with duckdb.connect(config={"memory_limit": _MEMORY}) as con:
        table = _by_period(con, found["moment"], hits, np.array([1]), period)
    return Analysis(table.drop_columns(["kind"]), notes)


def _groups(count: int, one: NDArray[np.int64], two: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the group of each row that pairs connect, the largest 0, then by first rows; -1 for a row without any."""
    roots = np.arange(count)
    while True:  # the least number spreads along the pairs
        before = roots.copy()
        least = np.minimum(roots[one], roots[two])
        np.minimum.at(roots, one, least)
        np.minimum.at(roots, two, least)
        roots = roots[roots]
        if np.array_equal(before, roots):
            break
    names, inverse, sizes = np.unique(roots, return_inverse=True, return_counts=True)
    numbers = np.full(len(names), -1)
    several = np.flatnonzero(sizes > 1)
    order = several[np.lexsort((names[several], -sizes[several]))]
    numbers[order] = np.arange(len(order))
    return numbers[inverse]


def _blocks(vectors: Vectors) -> Iterator[Vectors]:
    return (vectors[start : start + _BLOCK] for start in range(0, len(vectors), _BLOCK))


def _labels(con: duckdb.DuckDBPyConnection, rows: EmbeddedRows, numbers: NDArray[np.int32], total: int) -> list[str]:
    """Return a label for each cluster: the words that set its texts apart from the others."""
    if rows.texts is None or not len(rows):
        return [""] * total
    con.execute(read_sql("lexical_index"))
    for name in _TOKENIZER:
        con.execute(read_sql(f"macros/{name}"))
    register(con, "clustered_texts", pa.table({"grp": pa.array(numbers), "text": rows.texts}))
    con.execute(read_sql("exploring/count_words"))
    found = con.sql(read_sql("exploring/log_odds"), params={"prior": 500.0}).to_arrow_table().select(["grp", "term"])
    words: list[list[str]] = [[] for _ in range(total)]
    for row in found.to_pylist():
        if len(words[row["grp"]]) < _WORDS and not _NO_LABEL_WORD.fullmatch(row["term"]):
            words[row["grp"]].append(row["term"])
    con.execute("CREATE OR REPLACE TEMP VIEW labelled_texts AS SELECT text FROM clustered_texts")
    return as_spelled(con, [", ".join(own) for own in words])


def _moments(rows: EmbeddedRows, by: str) -> tuple[pa.ChunkedArray, list[str]]:
    """Return a column of dates or times as timestamps, and remarks; raise InputError where it is none."""
    if by not in rows.columns.column_names:
        known = ", ".join(rows.columns.column_names) or "none"
        raise InputError(
            f"{rows.name} was read without the column {by!r} (by): embed_rows(…, columns=[{by!r}]). Read: {known}."
        )
    column = rows.columns[by]
    given = pa.types.is_date(column.type) or pa.types.is_timestamp(column.type)
    if not given and not (rows.identity is not None and pa.types.is_string(column.type)):
        query, frame = _made_a_date(column, identifier(by), f"frame[{by!r}]")
        in_frame = f"; in a data frame, frame[{by!r}] = {frame}" if frame else ""
        raise InputError(
            f"The column {by} (by) of {rows.name} is of type {column.type}, not a date or time. Make it one and read "  # noqa: S608 - a message
            f"the rows again: in a query, SELECT * REPLACE ({query} AS {identifier(by)}) FROM …{in_frame}."
        )
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us"), safe=False)  # of a time with a zone, that in UTC
    with duckdb.connect() as con:
        register(con, "given_rows", pa.table({"given": column}))
        table = con.sql(read_sql("exploring/moments")).to_arrow_table()
    return table["moment"], _check_moments(table["given"], table["moment"], by, f"row of {rows.name}")


# Of dates in texts that DuckDB does not cast; where the day may be the month, the day is taken to come first.
_DATE_FORMS = (
    *("%d.%m.%Y", "%d.%m.%y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S", "%d/%m/%Y", "%m/%d/%Y", "%d/%m/%y", "%m/%d/%y"),
    *("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d-%m-%Y", "%d %B %Y", "%B %d, %Y", "%d %b %Y", "%b %d, %Y", "%Y%m%d"),
)

_JUDGED_DATES = 1000  # values that tell the form of a column


def _made_a_date(column: pa.ChunkedArray, name: str, in_frame: str) -> tuple[str, str]:
    """Return what makes dates or times of the values of a column, in SQL and by pandas ("" for none)."""
    values = [value for value in column.drop_null()[:_JUDGED_DATES].to_pylist() if value != ""]
    if pa.types.is_integer(column.type):
        most = max(map(abs, values), default=0)
        if most < 10_000:
            return f"make_date({name}, 1, 1)", f"pandas.to_datetime({in_frame}.astype(str), format='%Y')"
        function, unit = ("to_timestamp", "s") if most < 1e11 else ("epoch_ms", "ms")
        return f"{function}({name})", f"pandas.to_datetime({in_frame}, unit={unit!r})"
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return f"CAST({name} AS TIMESTAMP)", ""
    iso = pc.match_substring_regex(column, r"^\s*(\d{4}-\d{1,2}-\d{1,2}.*)?$")
    others = [value for value in column.filter(pc.invert(iso)).drop_null()[:_JUDGED_DATES].to_pylist() if value]
    fitting = {form: sum(_has_form(value, form) for value in others) for form in _DATE_FORMS}
    form = max(fitting, key=fitting.__getitem__) if any(fitting.values()) else ""
    if form and fitting[form] == len(others) == len(values):
        return f"strptime({name}, {quoted(form)})", f"pandas.to_datetime({in_frame}, format={form!r})"
    as_iso = f"pandas.to_datetime({in_frame}, format='ISO8601'{', errors=' + repr('coerce') if others else ''})"
    if form:
        as_other = f"pandas.to_datetime({in_frame}, format={form!r}, errors='coerce')"
        both = f"coalesce(TRY_CAST({name} AS TIMESTAMP), try_strptime({name}, {quoted(form)}))"
        return both, f"{as_iso}.fillna({as_other})"
    return f"{'TRY_' if others else ''}CAST({name} AS TIMESTAMP)", as_iso


def _has_form(value: str, form: str) -> bool:
    with suppress(ValueError):
        return bool(dt.datetime.strptime(value.strip(), form))
    return False


def _check_moments(
    given: pa.ChunkedArray, moments: pa.ChunkedArray, by: str, what: str, meant: Callable[[], str] = lambda: "."
) -> list[str]:
    """Return remarks on rows without a date; raise InputError where none has one, ``meant`` at its end."""
    lost = moments.null_count
    if not lost:
        return []
    wrong = pc.and_(given.is_valid(), moments.is_null())
    example = given.filter(wrong)
    why = ""
    if len(example):
        query, frame = _made_a_date(given, identifier(by), f"frame[{by!r}]")
        how = f", in a query by {query}, in a data frame by {frame}, and index again" if "strptime" in query else ""
        why = f": {example[0].as_py()!r} is none; write 2024-05-01{how}"
    if lost == len(moments):
        raise InputError(f"No {what} has a date in {by!r} (by){f'{why}.' if why else meant()}")
    return [f"{counted(lost, what.partition(' ')[0])} without a date in {by!r} left out{why}."]


def _by_period(
    con: duckdb.DuckDBPyConnection,
    moments: pa.ChunkedArray,
    kinds: NDArray[np.int32],
    wanted: NDArray[np.int64],
    period: str,
) -> pa.Table:
    """Return how many rows of each kind there are in each period: period, kind, count, total, share."""
    with_dates = pa.table({"moment": moments, "kind": pa.array(kinds, pa.int32())})
    register(con, "dated_rows", with_dates)
    register(con, "dated_kinds", pa.table({"kind": pa.array(wanted, pa.int32())}))
    first, last, spans, is_known = con.execute(read_sql("exploring/span_of_dates"), {"period": period}).fetchall()[0]
    if spans is not None and not is_known:
        raise InputError(
            f"The dates are from {first} to {last}. Only those of the years 1 to 9999 can be counted; leave out others."
        )
    if spans is not None and spans * len(wanted) > _MOST_PERIODS:
        raise InputError(
            f"From {first} to {last} are {spans:,} {period}s, too many to count. Take a longer "
            "period, or leave out dates that are wrong."
        )
    options = {"period": period, "step": PERIODS[period]}
    return con.sql(read_sql("exploring/periods"), params=options).to_arrow_table()


def _label_vectors(rows: EmbeddedRows, labels: object) -> tuple[list[str], NDArray[np.float64]]:
    """Return the labels and a unit vector for each."""
    if isinstance(labels, Mapping):
        given = dict(labels)
        names = list(given)
    else:
        names = arguments.items("labels", labels, "['billing', 'delivery']")
        given = {}
    if not names:
        raise InputError("labels is empty. Name some, such as ['billing', 'delivery'].")
    cleaned = [not_blank("A label", name).strip().casefold() for name in names]
    for place, name in enumerate(cleaned):
        if name in cleaned[:place]:
            raise InputError(
                f"The label {names[place]!r} is there twice. Name each once; give several examples as a list."
            )
    texts: list[str] = []
    parts: list[Vectors | slice] = []
    width = rows.vectors.shape[1]
    for name in names:
        value = given.get(name, name)
        if value is None:
            raise InputError(
                f"The label {name!r} is None. Give a text that says what it means, a list of examples, or vectors; or "
                "pass the labels alone, as a list."
            )
        if isinstance(value, str):
            value = [value]
        if isinstance(value, (list, tuple)) and any(isinstance(one, str) for one in value):
            parts.append(slice(len(texts), len(texts) + len(value)))
            texts += [not_blank(f"An example of {name!r}", one) for one in value]
            continue
        vectors = as_numbers(f"The vectors of {name!r}", value)
        vectors = vectors.reshape(1, -1) if vectors.ndim == 1 else vectors
        if not vectors.size:
            raise InputError(f"The label {name!r} has no example. Give a text, a list of texts, or vectors.")
        parts.append(unit_vectors(vectors, width if len(rows) else vectors.shape[1]))
    made = rows.embed(texts) if texts else None
    if made is not None and len(rows) and made.shape[1] != width:
        raise ModelMismatchError(
            f"The labels have vectors of {made.shape[1]} dimensions, the rows of {rows.name} of {width}. Name the "
            "model that made the latter: embed_rows(…, embedder=…)"
        )
    means = []
    for name, part in zip(names, parts, strict=True):
        vectors = made[part] if isinstance(part, slice) else part  # type: ignore[index]
        mean = vectors.astype(np.float64).sum(axis=0)
        length = float(np.sqrt(mean @ mean))
        if length < 1e-6:
            raise InputError(
                f"The examples of {name!r} are opposite to each other, so that their mean has no direction."
            )
        means.append(mean / length)
    found = np.stack(means)
    same = np.triu((found @ found.T) > 1 - 1e-9, 1)
    if same.any():
        one, two = np.argwhere(same)[0]
        raise InputError(
            f"The labels {names[one]!r} and {names[two]!r} have the same vector, so nothing tells them apart."
        )
    return names, found


def _filters(name: str, given: object) -> Filters:
    filters = arguments.mapping(name, given)
    valid = ("collection", "tags_any", "tags_all", "metadata")
    unknown = sorted(set(filters) - set(valid))
    if unknown:
        raise InputError(f"{name} has {', '.join(unknown)}; the filters are {', '.join(valid)}.")
    return Filters(**filters)


def _document_scores(store: Store, vector: NDArray[np.float32], by: str, filters: Filters) -> pa.Table:
    """Return the best cosine of each document, and when it is dated: score, given, moment."""
    con = store.cursor()
    options: dict[str, Any] = dict.fromkeys(("passing", "collection", "tags_any", "tags_all"))
    options |= {"vector": as_text(vector), **passing_filters(con, filters)}
    given = f"s.{by}"
    if by not in ("created_at", "modified_at"):
        given = "json_extract_string(s.metadata_, $field)"
        options["field"] = json_pointer(by)
    scores = for_dimensions(read_sql("exploring/document_scores"), store.dimensions).replace("$given", given)
    moments = read_sql("exploring/moments").replace("given_rows", f"(\n{scores.rstrip().removesuffix(';')}\n)")
    return con.sql(moments, params=options).to_arrow_table()
