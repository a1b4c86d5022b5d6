"""Pictures of a corpus and of results, by matplotlib: the map, the lengths of the chunks, the ranks of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from sqlrag.errors import InputError, MissingExtraError
from sqlrag.exploring.points import CorpusMap, stored_map
from sqlrag.exploring.themes import SHAPES, THEMES, Theme, mark
from sqlrag.options import choice, items
from sqlrag.retrieval.querying import opened
from sqlrag.store.schema import read_sql
from sqlrag.wording import counted

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sqlrag.retrieval.store import Store

_LONGEST = 48  # characters of a name beside a row
_MOST_RESULTS = 100


def plot_map(
    db_path: str | os.PathLike[str] | Store | CorpusMap, *, theme: Literal["light", "dark"] = "light"
) -> Figure:
    """Draw the map of a corpus with its labels, none of which covers another.

    Parameters
    ----------
    db_path
        The file or an open :class:`Store` with a map that :func:`corpus_map` has drawn, or what that returned.
    theme
        "light" or "dark" ground. Clusters differ in colour and shape, of the palette of Okabe and Ito.

    Returns
    -------
    matplotlib.figure.Figure
        Ten inches by seven. A notebook shows it; ``figure.savefig("map.png")`` writes it. pyplot is not touched.

    Raises
    ------
    InputError
        The theme is not valid.
    MissingExtraError
        matplotlib is not installed: the extra ``explore``.
    NotFoundError
        The file has no map.
    """
    drawn = db_path if isinstance(db_path, CorpusMap) else _stored(db_path)
    figure, axes, colours = _figure(theme, 10, 7)
    from sqlrag.exploring.placing import Label, place_labels  # matplotlib is there now

    table = drawn.arrow()
    x, y, cluster = (table[name].to_numpy() for name in ("x", "y", "cluster"))
    size = float(np.clip(40_000 / max(len(drawn), 1), 3, 24))
    for number in range(int(cluster.max(initial=-1)), -2, -1):  # small clusters lie above large ones
        own = cluster == number
        colour, shape = mark(number, colours)
        axes.scatter(x[own], y[own], s=size, c=colour, marker=shape, alpha=0.75, linewidths=0, rasterized=True)
    axes.set(xticks=[], yticks=[])
    axes.margins(0.06)
    many = counted(len(drawn), drawn.level)
    axes.set_title(f"{many} by {drawn.method}", color=colours.text, fontsize=11, loc="left")
    middles = [
        Label(topic["label"], float(np.median(x[own])), float(np.median(y[own])), *mark(topic["cluster"], colours))
        for topic in drawn.topics()
        if topic["label"] and (own := cluster == topic["cluster"]).any()
    ]
    place_labels(axes, middles, colours)
    return figure


def plot_lengths(db_path: str | os.PathLike[str] | Store, *, theme: Literal["light", "dark"] = "light") -> Figure:
    """Draw how long the chunks are, in characters, with the median and the length that one in twenty exceeds.

    Parameters
    ----------
    db_path
        The file, or an open :class:`Store`.
    theme
        As in :func:`plot_map`.

    Returns
    -------
    matplotlib.figure.Figure
        A histogram in at most 60 classes of equal width.

    Raises
    ------
    InputError
        The theme is not valid, or the file holds no chunks.
    MissingExtraError
        matplotlib is not installed: the extra ``explore``.
    """
    choice("theme", theme, THEMES)
    with opened(db_path) as store:
        lengths = store.cursor().sql(read_sql("exploring/lengths")).to_arrow_table()["characters"].to_numpy()
        if not len(lengths):
            raise InputError(f"{store.path} holds no chunks, so there are no lengths to draw.")
    figure, axes, colours = _figure(theme, 8, 4.5)
    axes.hist(
        lengths, bins=min(60, max(5, round(len(lengths) ** 0.5))), color=colours.clusters[0], edgecolor=colours.ground
    )
    axes.set_xlabel("characters of a chunk", color=colours.text)
    axes.set_ylabel("chunks", color=colours.text)
    axes.set_title(counted(len(lengths), "chunk"), color=colours.text, fontsize=11, loc="left")
    middle, high = np.percentile(lengths, [50, 95])
    axes.axvline(middle, color=colours.text, label=f"median {middle:,.0f}")
    axes.axvline(high, color=colours.text, linestyle="--", label=f"95 of 100 have at most {high:,.0f}")
    _legend(axes, colours)
    return figure


def plot_ranks(results: Sequence[Mapping[str, Any]], *, theme: Literal["light", "dark"] = "light") -> Figure:
    """Draw where each result stood in both legs and where it stands now, one result a row, the best above.

    Parameters
    ----------
    results
        What a query returned, best first: ``node_id``, ``vector_rank`` and ``lexical_rank``, at most 100.
    theme
        As in :func:`plot_map`.

    Returns
    -------
    matplotlib.figure.Figure
        Ranks run from left to right on a logarithmic axis. A hollow mark at the right edge: the leg has not found it.

    Raises
    ------
    InputError
        There are no results or more than 100, or the theme is not valid.
    MissingExtraError
        matplotlib is not installed: the extra ``explore``.
    """
    rows = items("results", results, "that of hybrid_query")
    if not 0 < len(rows) <= _MOST_RESULTS:
        raise InputError(f"plot_ranks draws 1 to {_MOST_RESULTS} results, not {len(rows)}.")
    figure, axes, colours = _figure(theme, 8, 1.6 + 0.3 * len(rows))
    legs = {leg: [row.get(f"{leg}_rank") for row in rows] for leg in ("vector", "lexical")}
    greatest = max([len(rows), *(rank for ranks in legs.values() for rank in ranks if rank)])
    missing = greatest * 1.6
    places = np.arange(1, len(rows) + 1)
    spans = np.array([[rank or missing for rank in ranks] for ranks in legs.values()] + [places])
    axes.hlines(places, spans.min(axis=0), spans.max(axis=0), color=colours.faint, linewidth=1.5, zorder=1)
    for (leg, ranks), colour, shape, shift in zip(legs.items(), colours.clusters, SHAPES, (-0.12, 0.12), strict=False):
        found = np.array([rank is not None for rank in ranks])
        at, heights = np.array([rank or missing for rank in ranks]), places + shift
        axes.scatter(at[found], heights[found], c=colour, marker=shape, s=42, label=f"{leg} leg", zorder=2)
        axes.scatter(at[~found], heights[~found], facecolors="none", edgecolors=colour, marker=shape, s=42, zorder=2)
    axes.scatter(places, places, c=colours.text, marker="|", s=90, label="result", zorder=3)
    axes.set_xscale("log")
    axes.set_xlim(0.8, missing * 1.3)
    ticks = [tick for tick in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if tick <= greatest]
    absent = any(rank is None for ranks in legs.values() for rank in ranks)
    axes.set_xticks([*ticks, *([missing] if absent else [])], [*map(str, ticks), *(["not found"] if absent else [])])
    axes.minorticks_off()
    axes.set_yticks(places, [_short(str(row.get("node_id", ""))) for row in rows], parse_math=False)
    axes.set_ylim(len(rows) + 0.6, 0.4)
    axes.set_xlabel("rank", color=colours.text)
    _legend(axes, colours)
    return figure


def _stored(db_path: str | os.PathLike[str] | Store) -> CorpusMap:
    with opened(db_path) as store:
        return stored_map(store)


def require_matplotlib() -> None:
    """Raise MissingExtraError where no picture can be drawn."""
    try:
        import sqlrag.exploring.picture  # noqa: F401 - the package may know it still where the module is gone
    except ImportError as error:
        raise MissingExtraError("A picture", "explore") from error


def _figure(theme: str, width: float, height: float) -> tuple[Figure, Axes, Theme]:
    """Return an empty figure in a theme, apart from pyplot and its settings."""
    colours = THEMES[choice("theme", theme, THEMES)]
    require_matplotlib()
    from sqlrag.exploring.picture import Picture

    figure = Picture(figsize=(width, height), dpi=120, facecolor=colours.ground, layout="constrained")
    axes = figure.add_subplot(facecolor=colours.ground)
    axes.tick_params(colors=colours.text)
    for side, spine in axes.spines.items():
        spine.set(color=colours.faint, visible=side in ("left", "bottom"))
    return figure, axes, colours


def _legend(axes: Axes, colours: Theme) -> None:
    """Put the legend above the picture, where it covers nothing."""
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3, "borderpad": 0}
    axes.legend(**place, frameon=False, labelcolor=colours.text, fontsize=9)


def _short(name: str) -> str:
    """Cut the beginning off a long name: its end says which chunk it is."""
    return name if len(name) <= _LONGEST else "…" + name[1 - _LONGEST :]
