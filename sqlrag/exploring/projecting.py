"""Finds places on a plane for vectors of many dimensions."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


COMPONENTS = 50
_NEIGHBOURS = 15  # umap-learn's own default
_SEED = 0


def principal_components(
    blocks: Callable[[], Iterator[NDArray[np.floating[Any]]]], dimensions: int
) -> NDArray[np.float64]:
    """Return the scores of vectors on their principal components, by the exact covariance matrix.

    The vectors are gone through twice, a block at a time; only the matrix and the scores are kept in memory.

    Parameters
    ----------
    blocks
        Gives the vectors afresh at each call, in blocks ``[any, dimensions]``, always in the same order.
    dimensions
        The length of the vectors.

    Returns
    -------
        ``[n, 50]``, or fewer columns for shorter vectors, at least two; the component with the greatest variance first.
        The greatest weight of each component is positive. Rounded to 6 decimals, so that the last bits of sums, which
        depend on the number of threads, do not show.
    """
    count, total, products = 0, np.zeros(dimensions), np.zeros((dimensions, dimensions))
    for block in blocks():
        exact = block.astype(np.float64)
        count += len(exact)
        total += exact.sum(axis=0)
        products += exact.T @ exact
    mean = total / max(count, 1)
    _, found = np.linalg.eigh(products / max(count, 1) - np.outer(mean, mean))
    axes = found[:, ::-1][:, :COMPONENTS]  # eigh gives the smallest first
    greatest = np.abs(axes).round(9).argmax(axis=0)
    axes = axes * np.where(axes[greatest, np.arange(axes.shape[1])] < 0, -1.0, 1.0)
    scores = [((block.astype(np.float64) - mean) @ axes).round(6) for block in blocks()]
    whole = np.concatenate([*scores, np.empty((0, axes.shape[1]))]) + 0.0  # no -0.0
    return np.pad(whole, ((0, 0), (0, max(0, 2 - whole.shape[1]))))


def umap_places(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return places by UMAP (McInnes, Healy, Melville 2018, arXiv:1802.03426), ``[n, 2]``.

    It begins with the first two principal components instead of a spectral layout, which keeps the large shape of the
    map (Kobak, Linderman 2021) and cannot fail where the graph of neighbours falls apart. One thread and a fixed seed:
    the same rows give the same places with the same versions of umap-learn and numba.

    Raises
    ------
    MissingExtraError
        umap-learn is not installed.
    InputError
        There are fewer than four vectors.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # umap tells that it has found no tensorflow, numba of what it will change
        try:
            from umap import UMAP
        except ImportError as error:
            raise MissingExtraError("The map method 'umap'", "explore") from error
        if len(scores) < 4:
            raise InputError(f"method='umap' needs four points or more, and there are {len(scores)}. Use 'pca'.")
        start = scores[:, :2] / max(np.abs(scores[:, :2]).max(), 1e-9) * 10
        model = UMAP(
            n_neighbors=min(_NEIGHBOURS, len(scores) - 1),
            init=start.astype(np.float32),
            random_state=_SEED,
            transform_seed=_SEED,
            n_jobs=1,
        )
        places: NDArray[np.float64] = np.asarray(model.fit_transform(scores.astype(np.float32)), np.float64)
    return np.round(places, 4) + 0.0
