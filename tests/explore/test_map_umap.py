"""Maps by UMAP: needs the extra ``explore``. Compiling umap-learn takes most of the time, so one test does it all."""

from __future__ import annotations

import numpy as np
import pytest

from sqlrag import InputError
from sqlrag.explore.map import hdbscan, umap_places

pytest.importorskip("umap", reason="needs umap-learn, of the extra explore")


def test_umap_keeps_groups_together_and_is_the_same_each_time():
    chance = np.random.default_rng(5)
    group = np.repeat([0, 1, 2], 40)
    scores = np.eye(3)[group] * 5 + chance.normal(size=(120, 3)) * 0.1
    places = umap_places(scores)
    assert places.shape == (120, 2)
    assert np.array_equal(places, umap_places(scores))
    found = hdbscan(places)
    assert len({(a, b) for a, b in zip(group, found, strict=True)}) == 3 == len(set(found.tolist()) - {-1})
    with pytest.raises(InputError, match="four points"):
        umap_places(scores[:3])
    assert np.isfinite(umap_places(scores[:4])).all()
