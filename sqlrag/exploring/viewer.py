"""Writes the map of a corpus as Parquet, in the columns that the viewer of SQLRooms reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sqlrag.exploring.points import stored_map
from sqlrag.formats.files import new_folder
from sqlrag.options import path as checked_path
from sqlrag.retrieval.querying import opened
from sqlrag.store.files import real_path
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    import os
    from pathlib import Path

    import duckdb
    import pyarrow as pa

    from sqlrag.retrieval.store import Store

_POINTS, _LINKS = "map.parquet", "map_links.parquet"


class ExportedMap(NamedTuple):
    """What :func:`export_map_parquet` wrote: the folder, how many points and how many links between them."""

    path: Path
    points: int
    links: int


def export_map_parquet(
    db_path: str | os.PathLike[str] | Store, path: str | os.PathLike[str], *, overwrite: bool = False
) -> ExportedMap:
    """Write the map of a file as ``map.parquet`` and ``map_links.parquet``, for the viewer of SQLRooms.

    ``map.parquet`` has a row for each point, in reading order: ``node_id`` (the doc_id where points are documents),
    ``title``, ``fileName``, ``file_path``, ``text``, ``x``, ``y``, ``topic`` (the label), ``outdegree``, ``indegree``.
    ``map_links.parquet`` has ``source_id`` and ``target_id``: from the chunk with a link to each chunk of the document
    that it leads to.

    Parameters
    ----------
    db_path
        The file or an open :class:`Store`, with a map that :func:`corpus_map` has drawn.
    path
        The folder to make.
    overwrite
        Replace such a folder that is there.

    Returns
    -------
    ExportedMap
        Path and counts.

    Raises
    ------
    NotFoundError
        The file has no map.
    StoreExistsError, StoreError, FormatError
        The folder exists, cannot be written or is something else.
    """
    import pyarrow.parquet as pq

    checked_path("path", path)
    with opened(db_path) as store:
        stored_map(store)
        points, links = store._database.read(lambda: _tables(store.cursor()))
    with new_folder(path, overwrite=overwrite, is_ours=_is_map, kind="folder of a map") as folder:
        pq.write_table(points, folder / _POINTS, compression="zstd")
        pq.write_table(links, folder / _LINKS, compression="zstd")
    return ExportedMap(real_path(path), len(points), len(links))


def _tables(con: duckdb.DuckDBPyConnection) -> tuple[pa.Table, pa.Table]:
    con.execute(read_sql("exploring/viewer_links"))
    points = con.sql(read_sql("exploring/viewer_points")).to_arrow_table()
    links = con.sql("FROM viewer_links ORDER BY source_id, target_id").to_arrow_table()
    con.execute("DROP TABLE viewer_links")
    return points, links


def _is_map(folder: Path) -> bool:
    return all((folder / name).is_file() for name in (_POINTS, _LINKS))
