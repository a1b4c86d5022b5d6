"""A figure that a notebook shows although pyplot, which would tell the notebook how, is not loaded."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure


class Picture(Figure):
    """A figure of matplotlib with the method that IPython asks for a PNG."""

    def _repr_png_(self) -> bytes:
        png = BytesIO()
        self.savefig(png, format="png", dpi=80)  # ten inches are about as wide as a notebook
        return png.getvalue()
