"""Pictures of a corpus and of results, by matplotlib: the map, the lengths of the chunks, the ranks of results."""

from __future__ import annotations

from io import BytesIO
from math import cos, pi, sin
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from sqlrag.arguments import choice, counted, items
from sqlrag.engines.duckdb.failures import public
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.errors import InputError, MissingExtraError
from sqlrag.explore.points import SHAPES, THEMES, CorpusMap, Theme, mark, stored_map
from sqlrag.search.open import open_file

try:
    from matplotlib.figure import Figure
    from matplotlib.font_manager import fontManager
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox
except ImportError as error:
    raise MissingExtraError("A picture", "explore") from error

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from sqlrag.search.store import Store


class Picture(Figure):
    """A matplotlib figure that IPython shows as a PNG."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, format="png", dpi=80)  # ten inches are about the width of a notebook
        return png.getvalue()


# Fallbacks, in this order, for letters that matplotlib's own font does not have.
_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei")

_GAP = 3  # pixels around a label

_STEP = 9  # pixels between two rings of tried places


class Label(NamedTuple):
    """A text, the point that it belongs to, and the mark of its cluster."""

    text: str
    x: float
    y: float
    colour: str
    shape: str


def fonts() -> list[str]:
    """Return the names of the fonts for labels: matplotlib's own and those with more letters."""
    installed = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _FONTS if name in installed)]


def place_labels(axes: Axes, labels: Sequence[Label], colours: Theme) -> None:
    """Write each label at its point or at the nearest place that covers no earlier label, connected by a line.

    Labels are placed in order. One that fits nowhere inside the axes is left out.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 - the caller has just created it
    figure.draw_without_rendering()  # computes the layout, and so the scale
    figure.set_layout_engine("none")  # a new layout would move the points under the labels
    inside, taken, mark_width = axes.get_window_extent(), list[Bbox](), figure.dpi / 8
    for label in labels:
        text = axes.text(label.x, label.y, label.text, fontsize=9, color=colours.text, va="center", family=fonts())
        text.set(parse_math=False, path_effects=[withStroke(linewidth=3, foreground=colours.ground)], clip_on=False)
        own = text.get_window_extent()
        whole = Bbox.from_extents(own.x0 - mark_width, own.y0, own.x1, own.y1).padded(_GAP)
        middle = axes.transData.transform((label.x, label.y))
        for right, up in _places(max(inside.width, inside.height)):
            box = whole.translated(middle[0] - whole.width / 2 - whole.x0 + right, up)
            within = box.x0 >= inside.x0 and box.x1 <= inside.x1 and box.y0 >= inside.y0 and box.y1 <= inside.y1
            if within and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                _write(axes, label, text, box, mark_width, colours)
                break
        else:
            text.remove()


def _write(axes: Axes, label: Label, text: Text, box: Bbox, mark_width: float, colours: Theme) -> None:
    """Put a label into its box, after the mark of its cluster, with a line to its point if that is outside."""
    back = axes.transData.inverted().transform
    height = (box.y0 + box.y1) / 2
    x, y = back((box.x0 + _GAP + mark_width, height))
    text.set_position((float(x), float(y)))
    at = back((box.x0 + _GAP + mark_width / 3, height))
    axes.plot(*at, label.shape, color=label.colour, markersize=7, markeredgecolor=colours.ground, zorder=text.zorder)
    if not box.contains(*axes.transData.transform((label.x, label.y))):
        end = back(((box.x0 + box.x1) / 2, height))
        axes.plot([label.x, end[0]], [label.y, end[1]], color=colours.text, linewidth=0.6, zorder=text.zorder - 1)


def _places(farthest: float) -> Iterator[tuple[float, float]]:
    """Yield shifts to the right and up, in pixels, on growing rings; a ring starts above the point."""
    yield 0.0, 0.0
    for ring in range(1, int(farthest / _STEP) + 1):
        for step in range(16):
            angle = pi / 2 + (step + 1) // 2 * (-1) ** step * pi / 8
            # Labels are wider than high, so places above and below come first.
            yield ring * _STEP * cos(angle), ring * _STEP * sin(angle)


_LONGEST = 48  # characters of a row's name

_MOST_RESULTS = 100


@public
def plot_map(
    db_path: str | os.PathLike[str] | Store | CorpusMap, *, theme: Literal["light", "dark"] = "light"
) -> Figure:
    """Draw the map of a corpus with its labels, without overlaps.

    Parameters
    ----------
    db_path
        The file or an open :class:`Store` with a map that :func:`corpus_map` has drawn, or the result of that function.
    theme
        "light" or "dark" background. Clusters differ in colour, of the palette of Okabe and Ito, and in shape.

    Returns
    -------
    matplotlib.figure.Figure
        Ten inches by seven. A notebook shows it; ``figure.savefig("map.png")`` writes it. pyplot is not used.

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

    table = drawn.arrow()
    x, y, cluster = (table[name].to_numpy() for name in ("x", "y", "cluster"))
    size = float(np.clip(40_000 / max(len(drawn), 1), 3, 24))
    for number in range(int(cluster.max(initial=-1)), -2, -1):  # small clusters are drawn over large ones
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


@public
def plot_lengths(db_path: str | os.PathLike[str] | Store, *, theme: Literal["light", "dark"] = "light") -> Figure:
    """Draw how long the chunks are, in characters, with the median and the 95th percentile.

    Parameters
    ----------
    db_path
        The file, or an open :class:`Store`.
    theme
        As in :func:`plot_map`.

    Returns
    -------
    matplotlib.figure.Figure
        A histogram with at most 60 bins of equal width.

    Raises
    ------
    InputError
        The theme is not valid, or the file has no chunks.
    MissingExtraError
        matplotlib is not installed: the extra ``explore``.
    """
    choice("theme", theme, THEMES)
    with open_file(db_path) as store:
        lengths = store.cursor().sql(read_sql("exploring/lengths")).to_arrow_table()["characters"].to_numpy()
        if not len(lengths):
            raise InputError(f"{store.path} has no chunks, so there are no lengths to draw.")
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
    """Draw the ranks of each result in both legs and in the results, one result a row, the best at the top.

    Parameters
    ----------
    results
        What a query returned, best first: ``node_id``, ``vector_rank`` and ``lexical_rank``, at most 100.
    theme
        As in :func:`plot_map`.

    Returns
    -------
    matplotlib.figure.Figure
        Ranks run from left to right on a logarithmic axis. A hollow mark at the right edge: the leg did not find it.

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
    with open_file(db_path) as store:
        return stored_map(store)


def _figure(theme: str, width: float, height: float) -> tuple[Figure, Axes, Theme]:
    """Return an empty figure in a theme, independent of pyplot and its settings."""
    colours = THEMES[choice("theme", theme, THEMES)]
    figure = Picture(figsize=(width, height), dpi=120, facecolor=colours.ground, layout="constrained")
    axes = figure.add_subplot(facecolor=colours.ground)
    axes.tick_params(colors=colours.text)
    for side, spine in axes.spines.items():
        spine.set(color=colours.faint, visible=side in ("left", "bottom"))
    return figure, axes, colours


def _legend(axes: Axes, colours: Theme) -> None:
    """Put the legend above the picture, so that it covers nothing."""
    place: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "ncols": 3, "borderpad": 0}
    axes.legend(**place, frameon=False, labelcolor=colours.text, fontsize=9)


def _short(name: str) -> str:
    """Cut the beginning off a long name: its end identifies the chunk."""
    return name if len(name) <= _LONGEST else "…" + name[1 - _LONGEST :]
