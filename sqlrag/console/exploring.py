"""``sqlrag map``."""

from __future__ import annotations

from enum import Enum
from pathlib import Path  # noqa: TC003 - typer reads the annotations
from typing import Annotated, Any

import typer

from sqlrag.console.app import command
from sqlrag.console.changing import one_file
from sqlrag.console.options import DbInstead, File, FormatName, option
from sqlrag.console.printing import Format, tell, write_rows


class Method(str, Enum):
    """How places are found."""

    pca = "pca"
    umap = "umap"


class Level(str, Enum):
    """What a point is."""

    chunk = "chunk"
    document = "document"


class Theme(str, Enum):
    """Ground of a picture."""

    light = "light"
    dark = "dark"


def _clusters(value: str) -> str:
    if value not in ("auto", "hdbscan", "none") and not value.isdecimal():
        raise typer.BadParameter(f"{value!r} is not a number, auto, hdbscan or none.")
    return value


@command(
    "map",
    "Draw a map of what is in a file.",
    "sqlrag map kb.duckdb",
    "sqlrag map kb.duckdb --method umap --html map.html --png map.png",
)
def draw_map(
    file: File = None,
    db: DbInstead = None,
    method: Annotated[
        Method, option("--method", help="How places are found; umap needs the extra explore.", show_default=True)
    ] = Method.pca,
    level: Annotated[Level, option("--level", help="What a point is.", show_default=True)] = Level.chunk,
    clusters: Annotated[
        str,
        option("--clusters", help="A number, auto, hdbscan or none.", callback=_clusters, show_default=True),
    ] = "auto",
    html: Annotated[Path | None, option("--html", metavar="FILE", help="Write an interactive page as well.")] = None,
    png: Annotated[Path | None, option("--png", metavar="FILE", help="Write a picture as well.")] = None,
    parquet: Annotated[
        Path | None, option("--parquet", metavar="DIR", help="Write Parquet for SQLRooms' viewer as well.")
    ] = None,
    theme: Annotated[Theme, option("--theme", help="Ground of the picture.", show_default=True)] = Theme.light,
    form: FormatName = Format.table,
) -> None:
    """Draw a map on which like texts lie near each other, keep it in the file, and print its clusters.

    It is the table corpus_map of the file, in the place of the one that was there. Outputs that exist are replaced.
    """
    from sqlrag.exploring.mapping import corpus_map

    path = one_file(file, db)
    wanted: Any = int(clusters) if clusters.isdecimal() else None if clusters == "none" else clusters
    if png:
        from sqlrag.exploring.plotting import plot_map, require_matplotlib

        require_matplotlib()  # before the work
    drawn = corpus_map(path, method=method.value, level=level.value, clusters=wanted)
    written: list[Path] = []
    if html:
        from sqlrag.exploring.page import export_map_html

        written.append(export_map_html(path, html, overwrite=True))
    if png:
        plot_map(drawn, theme=theme.value).savefig(png)
        written.append(png)
    if parquet:
        from sqlrag.exploring.viewer import export_map_parquet

        written.append(export_map_parquet(path, parquet, overwrite=True).path)
    for output in written:
        tell(f"{output} written")
    write_rows(drawn.topics(), ["cluster", "points", "label"], form, repr(drawn))
