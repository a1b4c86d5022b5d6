"""Groups points, without chance: the same points give the same clusters."""

from __future__ import annotations

from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

from sqlrag.errors import MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MOST = 16  # clusters, where their number is not given: more labels cannot be read on one map
_ROUNDS = 100
_BLOCK = 65_536


def default_clusters(points: int) -> int:
    """Return a number of clusters that fits so many points, 1 to 16."""
    return max(1, min(_MOST, round(sqrt(points / 2))))


def k_means(points: NDArray[np.float64], k: int) -> NDArray[np.int32]:
    """Return the cluster of each point by Lloyd's algorithm, the largest cluster 0.

    It begins with Var-Part (Su, Dy 2007, "In search of deterministic methods for initializing K-means"): the cluster
    with the greatest sum of squared errors is cut at its mean along the axis of its greatest variance, until there are
    ``k``. There are fewer where points coincide.
    """
    labels = _var_part(points, k)
    for _ in range(_ROUNDS):
        means = np.stack([points[labels == c].mean(axis=0) for c in range(labels.max(initial=0) + 1)])
        before, labels = labels, _nearest(points, means)
        labels = np.unique(labels, return_inverse=True)[1].reshape(-1)  # a cluster may have lost all of its points
        if np.array_equal(before, labels):
            break
    return _by_size(labels)


def hdbscan(places: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return the cluster of each place, the largest 0, by scikit-learn's HDBSCAN; -1 where it is in none.

    A cluster has one place in a hundred, and at least five.

    Raises
    ------
    MissingExtraError
        scikit-learn is not installed.
    """
    try:
        from sklearn.cluster import HDBSCAN
    except ImportError as error:
        raise MissingExtraError("clusters='hdbscan'", "explore") from error
    smallest = max(5, len(places) // 100)
    if len(places) < smallest:
        return np.full(len(places), -1, np.int32)
    return _by_size(HDBSCAN(min_cluster_size=smallest, min_samples=5, copy=True).fit(places).labels_)


def _var_part(points: NDArray[np.float64], k: int) -> NDArray[np.intp]:
    labels = np.zeros(len(points), np.intp)
    errors = [_squared_error(points)]
    while len(errors) < k and max(errors) > 0:
        widest = int(np.argmax(errors))
        rows = np.flatnonzero(labels == widest)
        own = points[rows]
        axis = int(own.var(axis=0).argmax())
        upper = own[:, axis] > own[:, axis].mean()
        labels[rows[upper]] = len(errors)
        errors[widest] = _squared_error(own[~upper])
        errors.append(_squared_error(own[upper]))
    return labels


def _squared_error(points: NDArray[np.float64]) -> float:
    # Rounded, since the variance of equal points can come out as a tiny number.
    return round(float(points.var(axis=0).sum()) * len(points), 9) if len(points) else 0.0


def _nearest(points: NDArray[np.float64], means: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return the nearest mean of each point, the first of equal ones."""
    squares = (means**2).sum(axis=1)
    blocks = (points[i : i + _BLOCK] for i in range(0, len(points), _BLOCK))
    return np.concatenate([(squares - 2 * (block @ means.T)).round(9).argmin(axis=1) for block in blocks])


def _by_size(labels: NDArray[np.intp]) -> NDArray[np.int32]:
    """Number the clusters by their size, the largest 0; of equal ones the one whose first point comes first."""
    names, first, counts = np.unique(labels[labels >= 0], return_index=True, return_counts=True)
    place = np.full(int(labels.max(initial=-1)) + 2, -1, np.int32)  # the last is that of -1
    place[names[np.lexsort((first, -counts))]] = np.arange(len(names))
    return place[labels]
