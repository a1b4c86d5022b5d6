"""Exports the map of a corpus: one HTML file, or Parquet for the viewer of SQLRooms."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlrag.arguments import path as checked_path
from sqlrag.arguments import text
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.files import real_path
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.explore.points import THEMES, stored_map
from sqlrag.formats.targets import new_folder, new_output
from sqlrag.search.open import open_file

if TYPE_CHECKING:
    import os

    import duckdb
    import pyarrow as pa

    from sqlrag.search.store import Store

_TEMPLATE = Path(__file__).with_name("map.html")

_CHARACTERS = 160  # of each text

# Characters that could close the data element, or end a script line in old browsers.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


@public
def export_map_html(
    db_path: str | os.PathLike[str] | Store,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the map of a file as one HTML page: hover over a point to read it, search, choose clusters, zoom and pan.

    The page contains the data, loads nothing, follows the reader's light or dark setting, and works from a local disk.
    It has the first 160 characters of each text, about 300 bytes a point: it is meant for up to 100,000 points.

    Parameters
    ----------
    db_path
        The file or an open :class:`Store`, with a map that :func:`corpus_map` has drawn.
    path
        The page to write.
    title
        The title above the map. None: the name of the file.
    overwrite
        Replace an existing file.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    NotFoundError
        The file has no map.
    StoreExistsError, StoreError
        The page exists, or cannot be written.
    """
    checked_path("path", path)
    with open_file(db_path) as store:
        drawn = stored_map(store)
        table = store.cursor().sql(read_sql("exploring/map_texts"), params={"characters": _CHARACTERS}).to_arrow_table()
        topics = store.cursor().sql("FROM topics").to_arrow_table().to_pylist()
        name = store.path.stem if title is None else text("title", title)
    data = {
        "title": name,
        "level": drawn.level,
        "method": drawn.method,
        "notices": drawn.notices,
        "colours": {name: theme.clusters for name, theme in THEMES.items()},
        "topics": topics,
        **{column: table[column].to_pylist() for column in table.column_names},
    }
    content = json.dumps(data, ensure_ascii=False, separators=(",", ":")).translate(_ESCAPES)
    page = _TEMPLATE.read_text(encoding="utf-8").replace("{}", content, 1)
    with new_output(path, overwrite=overwrite, is_ours=_is_page, kind="HTML page") as file:
        file.write(page.encode("utf-8", "replace"))
    return real_path(path)


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(15).lower() == b"<!doctype html>"


_POINTS, _LINKS = "map.parquet", "map_links.parquet"


class ExportedMap(NamedTuple):
    """What :func:`export_map_parquet` wrote: the folder, how many points and how many links between them."""

    path: Path
    points: int
    links: int


@public
def export_map_parquet(
    db_path: str | os.PathLike[str] | Store, path: str | os.PathLike[str], *, overwrite: bool = False
) -> ExportedMap:
    """Write the map of a file as ``map.parquet`` and ``map_links.parquet``, for the viewer of SQLRooms.

    ``map.parquet`` has a row for each point, in reading order: ``node_id`` (the doc_id if points are documents),
    ``title``, ``fileName``, ``file_path``, ``text``, ``x``, ``y``, ``topic`` (the label), ``outdegree``, ``indegree``.
    ``map_links.parquet`` has ``source_id`` and ``target_id``: from the chunk with a link to each chunk of the
    document that it points to.

    Parameters
    ----------
    db_path
        The file or an open :class:`Store`, with a map that :func:`corpus_map` has drawn.
    path
        The folder to write.
    overwrite
        Replace an existing folder of this kind.

    Returns
    -------
    ExportedMap
        Path and counts.

    Raises
    ------
    NotFoundError
        The file has no map.
    StoreExistsError, StoreError, FormatError
        The folder exists, cannot be written or is of another kind.
    """
    import pyarrow.parquet as pq

    checked_path("path", path)
    with open_file(db_path) as store:
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
