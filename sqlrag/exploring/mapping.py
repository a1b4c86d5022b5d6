"""Draws the map of a corpus and keeps it in the file."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from sqlrag.errors import InputError
from sqlrag.exploring.clustering import default_clusters, hdbscan, k_means
from sqlrag.exploring.points import CorpusMap, stored_map
from sqlrag.exploring.projecting import principal_components, umap_places
from sqlrag.options import choice, shown, whole
from sqlrag.retrieval.querying import opened
from sqlrag.store.metadata import write_metadata
from sqlrag.store.schema import read_sql, run_script

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    import duckdb
    from numpy.typing import NDArray

    from sqlrag.retrieval.store import Store
    from sqlrag.types import Vectors

_BLOCK = 16_384  # vectors that are read at a time: 25 MB at 384 dimensions
_WORDS = 3  # of a label
_MOST_CLUSTERS = 1000


def corpus_map(
    db_path: str | os.PathLike[str] | Store,
    *,
    method: Literal["pca", "umap"] = "pca",
    level: Literal["chunk", "document"] = "chunk",
    clusters: int | Literal["auto", "hdbscan"] | None = "auto",
) -> CorpusMap:
    """Draw a map on which chunks, or documents, of like meaning lie near each other, and keep it in the file.

    It is the table ``corpus_map``, in the place of the map that was there; the view ``topics`` has its clusters,
    ``map_status`` says how it was drawn. What is written to the file later is not on it; what is deleted or replaced
    goes off it. The same chunks give the same map, in whatever order and by however many threads they were written.

    Parameters
    ----------
    db_path
        The file, or a :class:`Store` that is open for writing.
    method
        "pca": the first two principal components of the vectors. "umap": UMAP over the first 50, which keeps neighbours
        together and shows more groups; it needs the extra ``explore``, and for 5,000 chunks about 85 seconds of
        processor time, in which its library is compiled anew in each process.
    level
        What a point is. The vector of a document is the mean of those of its chunks, at length 1; documents without
        chunks are not on the map.
    clusters
        How many there are, from 1 to 1000, by k-means over the first 50 principal components; "auto": the root of half
        the number of points, at most 16. "hdbscan": groups that lie close on the map itself, as many as there are, of
        at least one point in a hundred; the others are in none. It needs the extra ``explore``. None: no clusters.

    Returns
    -------
    CorpusMap
        The points in the order of ``doc_id`` and ``chunk_index``. Clusters are numbered by their size, the largest 0;
        the label of a cluster are the three words that stand out in it, by class-based TF-IDF over the lexical index.

    Raises
    ------
    InputError
        An option is not valid, or there are fewer than four points for UMAP.
    MissingExtraError
        "umap" or "hdbscan" is wanted and the extra ``explore`` is not installed.
    NotFoundError, NotAStoreError, SchemaVersionError, StoreLockedError, StoreError
        The file cannot be written.

    Notes
    -----
    Vectors are read in blocks, never all at once. For each point 400 bytes are kept (50 numbers), twice that for a
    moment, and for level "document" 8 bytes a dimension beside it. UMAP took 160 MB more for 5,000
    points, its library included.

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
    with opened(db_path, read_only=False):
        pass  # if it cannot be written, say so before the work
    # Others can read the file meanwhile; what they delete before the map is written does not come onto it.
    with opened(db_path) as store:
        chunks, points, scores = store._database.read(lambda: _points(store.cursor(), store.dimensions, level))
    places = umap_places(scores) if method == "umap" and len(scores) else scores[:, :2]
    labels = _clusters(scores, places, clusters)
    with opened(db_path, read_only=False) as store:
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
    means = sums / np.where(lengths > 1e-12, lengths, 1)  # chunks that point against each other have no direction
    points = pa.table({"node_id": pa.nulls(len(means), pa.string()), "doc_id": documents.dictionary})
    return chunks, points, principal_components(lambda: iter([means]), dimensions)


def _vectors(con: duckdb.DuckDBPyConnection, rids: NDArray[np.int32]) -> Iterator[Vectors]:
    """Yield the vectors of chunks in blocks, in the order of their ``rid``, in which they lie in the file."""
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
    con.register("new_map", points)
    con.register("read_chunks", chunks)
    run_script(con, "exploring/stage_map")
    con.register("new_labels", con.sql(read_sql("exploring/cluster_labels"), params={"words": _WORDS}).to_arrow_table())
    run_script(con, "exploring/insert_map")
    con.execute("DROP TABLE staged_clusters")
    for name in ("new_labels", "new_map", "read_chunks"):
        con.unregister(name)
