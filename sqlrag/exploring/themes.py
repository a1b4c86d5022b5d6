"""The colours and shapes of pictures, light and dark: told apart by people who see few colours, too."""

from __future__ import annotations

from typing import NamedTuple

# Matplotlib's names of circle, square and triangle. With the colours they make 18 marks; then they begin again.
SHAPES = ("o", "s", "^")


class Theme(NamedTuple):
    """Colours of a picture: ground, text, lines, points of no cluster, and those of the clusters."""

    ground: str
    text: str
    faint: str
    none: str
    clusters: tuple[str, ...]


# The palette of Okabe and Ito (2008) without black and yellow, which one of the grounds swallows; lighter on the dark
# one, where each stands out from the ground by 3:1 and more.
THEMES = {
    "light": Theme(
        "#ffffff", "#1b1f24", "#c9ced6", "#9aa1ab", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
    ),
    "dark": Theme(
        "#14171c", "#eceff3", "#3c434d", "#757d88", ("#4A9FE0", "#F0803C", "#2CC79B", "#E39CC4", "#F3B73E", "#9FDCF5")
    ),
}


def mark(cluster: int, theme: Theme) -> tuple[str, str]:
    """Return colour and shape of a cluster, and those of points without one for -1."""
    if cluster < 0:
        return theme.none, SHAPES[0]
    count = len(theme.clusters)
    return theme.clusters[cluster % count], SHAPES[cluster // count % len(SHAPES)]
