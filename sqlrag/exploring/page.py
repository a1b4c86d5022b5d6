"""Writes the map of a corpus as one HTML file that needs nothing beside it: no server and no network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from sqlrag.exploring.points import stored_map
from sqlrag.exploring.themes import THEMES
from sqlrag.formats.files import new_output
from sqlrag.options import path as checked_path
from sqlrag.options import text
from sqlrag.retrieval.querying import opened
from sqlrag.store.files import real_path
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    import os

    from sqlrag.retrieval.store import Store

_TEMPLATE = Path(__file__).with_name("map.html")
_CHARACTERS = 160  # of each text
# What would end the element that holds the data, or a line of a script in old browsers.
_ESCAPES = {ord(character): f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}


def export_map_html(
    db_path: str | os.PathLike[str] | Store,
    path: str | os.PathLike[str],
    *,
    title: str | None = None,
    overwrite: bool = False,
) -> Path:
    """Write the map of a file as one HTML page: hover over a point to read it, search, choose clusters, zoom and move.

    The page holds the data, loads nothing, follows the light or dark setting of the reader, and works from a disk. Of
    each text it has the first 160 characters, about 300 bytes a point: it is meant for up to 100,000 of them.

    Parameters
    ----------
    db_path
        The file or an open :class:`Store`, with a map that :func:`corpus_map` has drawn.
    path
        The page to write.
    title
        Above the map. None: the name of the file.
    overwrite
        Replace a file that is there.

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
    with opened(db_path) as store:
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
