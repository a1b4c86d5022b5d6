"""Places labels on a picture so that none covers another."""

from __future__ import annotations

from math import cos, pi, sin
from typing import TYPE_CHECKING, NamedTuple

from matplotlib.font_manager import fontManager
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from matplotlib.axes import Axes
    from matplotlib.text import Text

    from sqlrag.exploring.themes import Theme

# Tried in this order for letters that matplotlib's own font lacks.
_FONTS = ("Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Microsoft YaHei")
_GAP = 3  # pixels around a label
_STEP = 9  # pixels between two rings of places that are tried


class Label(NamedTuple):
    """A text, the point that it belongs to, and the mark of its cluster."""

    text: str
    x: float
    y: float
    colour: str
    shape: str


def fonts() -> list[str]:
    """Return the names of the fonts that labels are written in: matplotlib's own and those with more letters."""
    there = {font.name for font in fontManager.ttflist}
    return ["DejaVu Sans", *(name for name in _FONTS if name in there)]


def place_labels(axes: Axes, labels: Sequence[Label], colours: Theme) -> None:
    """Write each label at its point, or as near to it as it covers no earlier one, with a line to it where it is away.

    The first are placed first. One that fits nowhere inside the axes is left out.
    """
    figure = axes.get_figure(root=True)
    assert figure is not None  # noqa: S101 - the caller has just made it
    figure.draw_without_rendering()  # the layout, and so the scale, is known only now
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
    """Put a label into its box, behind the mark of its cluster, with a line to its point where the box is beside it."""
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
    """Yield shifts to the right and up, in pixels, on wider and wider rings; a ring begins above the point."""
    yield 0.0, 0.0
    for ring in range(1, int(farthest / _STEP) + 1):
        for step in range(16):
            angle = pi / 2 + (step + 1) // 2 * (-1) ** step * pi / 8
            # Labels are wider than high, so they evade upwards and downwards first.
            yield ring * _STEP * cos(angle), ring * _STEP * sin(angle)
