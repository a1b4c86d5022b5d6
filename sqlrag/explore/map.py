"""Draws the map of a corpus and stores it in the file: projection, clusters, labels."""

from __future__ import annotations

import json
import warnings
from functools import partial
from math import sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa

from sqlrag.arguments import choice, shown, whole
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.metadata import write_metadata
from sqlrag.engines.duckdb.schema import read_sql, run_script
from sqlrag.engines.duckdb.statements import register
from sqlrag.errors import InputError, MissingExtraError
from sqlrag.explore.points import CorpusMap, stored_map
from sqlrag.progress import Bar
from sqlrag.search.open import open_file

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.search.store import Store
    from sqlrag.types import Vectors

_MOST = 16  # clusters by default: more labels are not readable on one map

_ROUNDS = 100

_CLUSTER_BLOCK = 65_536


def default_clusters(points: int) -> int:
    """Return the default number of clusters for so many points, 1 to 16."""
    return max(1, min(_MOST, round(sqrt(points / 2))))


def k_means(points: NDArray[np.float64], k: int, rounds: int = _ROUNDS) -> NDArray[np.int32]:
    """Return the cluster of each point by Lloyd's algorithm, the largest cluster 0.

    It is initialized with Var-Part (Su, Dy 2007, "In search of deterministic methods for initializing K-means"): the
    cluster with the greatest sum of squared errors is split at its mean along the axis of its greatest variance, until
    there are ``k``. There are fewer if points coincide.
    """
    labels = _var_part(points, k)
    for _ in range(rounds):
        means = np.stack([points[labels == c].mean(axis=0) for c in range(labels.max(initial=0) + 1)])
        before, labels = labels, _nearest(points, means)
        labels = np.unique(labels, return_inverse=True)[1].reshape(-1)  # a cluster may have become empty
        if np.array_equal(before, labels):
            break
    return _by_size(labels)


def hdbscan(places: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the cluster of each place, the largest 0, by scikit-learn's HDBSCAN; -1 if it is in none.

    A cluster has at least one point in a hundred, and at least five.

    Raises
    ------
    MissingExtraError
        scikit-learn is not installed.
    """
    try:
        from sklearn.cluster import HDBSCAN
    except ImportError as error:
        raise MissingExtraError("clusters='hdbscan'", "explore") from error
    smallest = max(5, len(places) // 100)
    if len(places) < smallest:
        return np.full(len(places), -1, np.int32)
    return _by_size(HDBSCAN(min_cluster_size=smallest, min_samples=5, copy=True).fit(places).labels_)


def _var_part(points: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    labels = np.zeros(len(points), np.intp)
    errors = [_squared_error(points)]
    while len(errors) < k and max(errors) > 0:
        widest = int(np.argmax(errors))
        rows = np.flatnonzero(labels == widest)
        own = points[rows]
        axis = int(own.var(axis=0).argmax())
        upper = own[:, axis] > own[:, axis].mean()
        labels[rows[upper]] = len(errors)
        errors[widest] = _squared_error(own[~upper])
        errors.append(_squared_error(own[upper]))
    return labels


def _squared_error(points: NDArray[np.float64]) -> float:
    # Rounded, since the computed variance of equal points can be a tiny number.
    return round(float(points.var(axis=0).sum()) * len(points), 9) if len(points) else 0.0


def _nearest(points: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the nearest mean of each point, the first of equal ones."""
    squares = (means**2).sum(axis=1)
    blocks = (points[i : i + _CLUSTER_BLOCK] for i in range(0, len(points), _CLUSTER_BLOCK))
    return np.concatenate([(squares - 2 * (block @ means.T)).round(9).argmin(axis=1) for block in blocks])


def _by_size(labels: NDArray[np.intp]) -> NDArray[np.int32]:
    """Number the clusters by their size, the largest 0; equal ones by their first point."""
    names, first, counts = np.unique(labels[labels >= 0], return_index=True, return_counts=True)
    place = np.full(int(labels.max(initial=-1)) + 2, -1, np.int32)  # the last entry is for -1
    place[names[np.lexsort((first, -counts))]] = np.arange(len(names))
    return place[labels]


COMPONENTS = 50

_NEIGHBOURS = 15  # umap-learn's own default

_SEED = 0


def principal_components(
    blocks: Callable[[], Iterator[NDArray[np.floating[Any]]]], dimensions: int
) -> NDArray[np.float64]:
    """Return the scores of vectors on their principal components, by the exact covariance matrix.

    The vectors are read twice, in blocks; only the matrix and the scores are kept in memory.

    Parameters
    ----------
    blocks
        Returns a new iterator over the vectors at each call, in blocks ``[any, dimensions]``, always in the same order.
    dimensions
        The length of the vectors.

    Returns
    -------
        ``[n, 50]``, or fewer columns for shorter vectors, at least two; the component with the greatest variance first.
        The greatest weight of each component is positive. Rounded to 6 decimals, since the last bits of sums depend on
        the number of threads.
    """
    count, total, products = 0, np.zeros(dimensions), np.zeros((dimensions, dimensions))
    for block in blocks():
        exact = block.astype(np.float64)
        count += len(exact)
        total += exact.sum(axis=0)
        products += exact.T @ exact
    mean = total / max(count, 1)
    _, found = np.linalg.eigh(products / max(count, 1) - np.outer(mean, mean))
    axes = found[:, ::-1][:, :COMPONENTS]  # eigh returns the smallest first
    greatest = np.abs(axes).round(9).argmax(axis=0)
    axes = axes * np.where(axes[greatest, np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    scores = [((block.astype(np.float64) - mean) @ axes).round(6) for block in blocks()]
    whole = np.concatenate([*scores, np.empty((0, axes.shape[1]))]) + 0.0  # no -0.0
    return np.pad(whole, ((0, 0), (0, max(0, 2 - whole.shape[1]))))


def umap_places(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return places by UMAP (McInnes, Healy, Melville 2018, arXiv:1802.03426), ``[n, 2]``.

    It is initialized with the first two principal components instead of a spectral layout, which keeps the global shape
    of the map (Kobak, Linderman 2021) and works for a disconnected neighbour graph. One thread and a fixed seed: the
    same rows give the same places with the same versions of umap-learn and numba.

    Raises
    ------
    MissingExtraError
        umap-learn is not installed.
    InputError
        There are fewer than four vectors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap warns about a missing tensorflow, numba about future changes
        try:
            from umap import UMAP
        except ImportError as error:
            raise MissingExtraError("The map method 'umap'", "explore") from error
        if len(scores) < 4:
            raise InputError(f"method='umap' needs four points or more, and there are {len(scores)}. Use 'pca'.")
        start = scores[:, :2] / max(np.abs(scores[:, :2]).max(), 1e-9) * 10
        model = UMAP(
            n_neighbors=min(_NEIGHBOURS, len(scores) - 1),
            init=start.astype(np.float32),
            random_state=_SEED,
            transform_seed=_SEED,
            n_jobs=1,
        )
        places: NDArray[np.float64] = np.asarray(model.fit_transform(scores.astype(np.float32)), np.float64)
    return np.round(places, 4) + 0.0


_BLOCK = 16_384  # vectors read at a time: 25 MB at 384 dimensions

_WORDS = 3  # of a label

_MOST_CLUSTERS = 1000


@public
def corpus_map(
    db_path: str | os.PathLike[str] | Store,
    *,
    method: Literal["pca", "umap"] = "pca",
    level: Literal["chunk", "document"] = "chunk",
    clusters: int | Literal["auto", "hdbscan"] | None = "auto",
) -> CorpusMap:
    """Draw a map on which chunks, or documents, of similar meaning are close to each other, and store it in the file.

    It is stored in the table ``corpus_map`` and replaces an earlier map; the view ``topics`` has its clusters,
    ``map_status`` how it was drawn. Later chunks are not on it; deleted or replaced ones are removed from it. The same
    chunks give the same map, independent of the order and the threads in which they were written.

    Parameters
    ----------
    db_path
        The file, or a :class:`Store` that is open for writing.
    method
        "pca": the first two principal components of the vectors. "umap": UMAP over the first 50, which keeps neighbours
        together and shows more groups; it needs the extra ``explore``, and for 5,000 chunks about 85 seconds of
        processor time, since its library is compiled in each process.
    level
        What a point is. The vector of a document is the mean of those of its chunks, at length 1; documents without
        chunks are not on the map.
    clusters
        Their number, from 1 to 1000, by k-means over the first 50 principal components; "auto": the square root of
        half the number of points, at most 16. "hdbscan": all dense groups on the map, of at least one point in a
        hundred; other points are in no cluster. It needs the extra ``explore``. None: no clusters.

    Returns
    -------
    CorpusMap
        The points in the order of ``doc_id`` and ``chunk_index``. Clusters are numbered by their size, the largest 0;
        the label of a cluster are its three most characteristic words, by class-based TF-IDF over the lexical index.

    Raises
    ------
    InputError
        An option is not valid, or there are fewer than four points for UMAP.
    MissingExtraError
        "umap" or "hdbscan" is used and the extra ``explore`` is not installed.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.

    Notes
    -----
    Vectors are read in blocks. Each point takes 400 bytes (50 numbers), temporarily twice that, and for level
    "document" 8 more bytes a dimension. UMAP took 160 MB more for 5,000 points, its library included.

    Examples
    --------
    >>> drawn = corpus_map("kb.duckdb", clusters=8)  # doctest: +SKIP
    >>> drawn.topics()[0]["label"]  # doctest: +SKIP
    'filter, tags, metadata'
    """
    choice("method", method, ("pca", "umap"))
    choice("level", level, ("chunk", "document"))
    if isinstance(clusters, str):
        choice("clusters", clusters, ("auto", "hdbscan"))
    elif clusters is not None:
        try:
            clusters = whole("clusters", clusters, 1, _MOST_CLUSTERS)
        except InputError as error:
            wanted = f"a whole number from 1 to {_MOST_CLUSTERS}, 'auto', 'hdbscan' or None"
            raise InputError(f"clusters must be {wanted}, not {shown(clusters)}.") from error
    with open_file(db_path, read_only=False):
        pass  # fail before the long work if the file cannot be written
    # Others can use the file meanwhile; chunks that they delete before the map is written are not on it.
    with Bar("reading the vectors", "step", 3) as bar:
        with open_file(db_path) as store:
            chunks, points, scores = store._database.read(lambda: _points(store.cursor(), store.dimensions, level))
        bar.made(1)
        bar.goes_on("placing the points")
        places = umap_places(scores) if method == "umap" and len(scores) else scores[:, :2]
        bar.made(1)
        bar.goes_on("finding clusters")
        labels = _clusters(scores, places, clusters)
    with open_file(db_path, read_only=False) as store:
        with store._database.transaction() as con:
            _write(con, chunks, points, places, labels)
            facts = {"level": level, "method": method, "clusters": clusters}
            write_metadata(con, {"corpus_map": json.dumps(facts)})
        store._database.checkpoint()
        return stored_map(store)


def _points(
    con: duckdb.DuckDBPyConnection, dimensions: int, level: str
) -> tuple[pa.Table, pa.Table, NDArray[np.float64]]:
    """Return the chunks, node_id and doc_id of every point in reading order, and its scores on the components."""
    chunks = con.sql(read_sql("exploring/map_chunks")).to_arrow_table()
    rids = chunks["rid"].to_numpy()
    order = np.argsort(rids)
    blocks = partial(_vectors, con, rids[order])
    if level == "chunk":
        found = principal_components(blocks, dimensions)
        scores = np.empty_like(found)
        scores[order] = found
        return chunks, chunks.select(["node_id", "doc_id"]), scores
    documents = chunks["doc_id"].combine_chunks().dictionary_encode()
    sums = np.zeros((len(documents.dictionary), dimensions))
    of_row, done = documents.indices.to_numpy(zero_copy_only=False)[order], 0
    for block in blocks():
        np.add.at(sums, of_row[done : done + len(block)], block)
        done += len(block)
    lengths = np.sqrt(np.einsum("ij,ij->i", sums, sums))[:, None]
    means = sums / np.where(lengths > 1e-12, lengths, 1)  # opposite vectors cancel out and have no direction
    points = pa.table({"node_id": pa.nulls(len(means), pa.string()), "doc_id": documents.dictionary})
    return chunks, points, principal_components(lambda: iter([means]), dimensions)


def _vectors(con: duckdb.DuckDBPyConnection, rids: NDArray[np.int32]) -> Iterator[Vectors]:
    """Yield the vectors of chunks in blocks, in the order of their ``rid``, which is that of the file."""
    for start in range(0, len(rids), _BLOCK):
        own = rids[start : start + _BLOCK]
        span = {"first": int(own[0]), "stop": int(own[-1]) + 1}
        column = con.sql(read_sql("exploring/map_vectors"), params=span).to_arrow_table()["embedding"]
        yield column.combine_chunks().flatten().to_numpy().reshape(len(own), -1)


def _clusters(
    scores: NDArray[np.float64], places: NDArray[np.float64], clusters: int | str | None
) -> NDArray[np.int32]:
    if clusters is None or not len(scores):
        return np.full(len(scores), -1, np.int32)
    if clusters == "hdbscan":
        return hdbscan(places)
    return k_means(scores, clusters if isinstance(clusters, int) else default_clusters(len(scores)))


def as_spelled(con: duckdb.DuckDBPyConnection, labels: Sequence[str]) -> list[str]:
    """Return labels whose words are folded, as the index has them, in the spelling most frequent in labelled_texts."""
    words = sorted({word for label in labels for word in label.split(", ")})
    spelled = dict(con.execute(read_sql("exploring/spellings"), {"words": words}).fetchall())
    return [", ".join(spelled.get(word, word) for word in label.split(", ")) for label in labels]


def _write(
    con: duckdb.DuckDBPyConnection,
    chunks: pa.Table,
    points: pa.Table,
    places: NDArray[np.float64],
    labels: NDArray[np.int32],
) -> None:
    columns = {"x": places[:, 0], "y": places[:, 1], "cluster": labels, "place": np.arange(len(points))}
    for name, values in columns.items():
        points = points.append_column(name, pa.array(np.ascontiguousarray(values)))
    register(con, "new_map", points)
    register(con, "read_chunks", chunks)
    run_script(con, "exploring/stage_map")
    named = con.sql(read_sql("exploring/cluster_labels"), params={"words": _WORDS}).to_arrow_table()
    register(con, "new_labels", named)
    con.execute(read_sql("exploring/label_texts"))
    spelled = as_spelled(con, named["label"].to_pylist())
    con.execute("DROP VIEW labelled_texts")
    register(con, "new_labels", named.set_column(1, "label", pa.array(spelled, pa.string())))
    run_script(con, "exploring/insert_map")
    con.execute("DROP TABLE staged_clusters")
    for name in ("new_labels", "new_map", "read_chunks"):
        con.unregister(name)
