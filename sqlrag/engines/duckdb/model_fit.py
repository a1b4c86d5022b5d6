"""Whether a model tells the texts of a file apart, and what is said where it does not."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from sqlrag.engines.duckdb.metadata import model_identity, read_metadata
from sqlrag.engines.duckdb.schema import read_sql

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import duckdb
    from numpy.typing import NDArray

SAMPLE = 400

# Fewer chunks are often about one subject, and then alike for that reason.
FEWEST = 100

# On public collections the mean cosine is .03 to .30 where the model knows the language, and .45 or more where not.
MOST_ALIKE = 0.4

# Texts of one pattern, such as rows of a table, share .6 of their words, those of the collections .14 at most. The
# vectors of the former are alike because the texts are, which says nothing of the model.
MOST_SHARED = 0.3

# Chinese and Japanese have words of both.
_SCRIPTS = {"cjk": "Chinese or Japanese", "hiragana": "Chinese or Japanese", "katakana": "Chinese or Japanese"}


def mean_cosine(vectors: NDArray[np.float32]) -> float:
    """Return the mean cosine of two different ones of the vectors, ``[n, d]`` of unit length, n of 2 or more.

    It follows from the squared length of their mean, m: (n·m - 1) / (n - 1).
    """
    count = len(vectors)
    return float((count * np.square(vectors.mean(axis=0, dtype=np.float64)).sum() - 1) / (count - 1))


def shared_words(texts: Sequence[str]) -> float:
    """Return how many words two different ones of the texts share: the mean cosine of their sets of words, 0..1.

    Examples
    --------
    >>> round(shared_words(["red shirt", "red coat", "Red hat"]), 2), shared_words(["a", "b"])
    (0.5, 0.0)
    """
    sets = [words for words in ({*re.findall(r"\w+", text.lower())} for text in texts) if words]
    summed: dict[str, float] = {}
    for words in sets:
        for word in words:
            summed[word] = summed.get(word, 0.0) + len(words) ** -0.5
    count = len(sets)
    return (sum(value**2 for value in summed.values()) - count) / (count * (count - 1)) if count > 1 else 0.0


def script(texts: Iterable[str]) -> str:
    """Return the script that more than half of the letters have, such as "Cyrillic"; "" where there is none.

    Examples
    --------
    >>> script(["Пример: KEY"]), script(["汉字と かな"]), script(["a б"])
    ('Cyrillic', 'Chinese or Japanese', '')
    """
    letters = Counter(char for text in texts for char in text if char.isalpha())
    scripts: Counter[str] = Counter()
    for letter, count in letters.items():
        name = unicodedata.name(letter, "?").partition(" ")[0].lower()
        scripts[_SCRIPTS.get(name, name.title())] += count
    most, count = next(iter(scripts.most_common(1)), ("", 0))
    return most if 2 * count > scripts.total() else ""


def model_fit(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return a remark if the model hardly tells the chunks of a file apart, by a sample of them; else none."""
    identity = model_identity(read_metadata(con))
    if identity.provider == "hashing":  # it knows words, not a language
        return []
    rows = con.execute(read_sql("index/sample_chunks"), {"sample": SAMPLE}).fetchall()
    vectors = np.array([row[0] for row in rows if None not in row[0]], dtype=np.float32)
    if len(vectors) < FEWEST or not np.isfinite(vectors).all():
        return []
    alike = mean_cosine(vectors)
    if alike < MOST_ALIKE:
        return []
    texts = [text for _, text in rows]
    if shared_words(texts) > MOST_SHARED:
        return []
    letters = script(texts)
    known = f", and most of their letters are {letters}" if letters not in ("", "Latin") else ""
    note = (
        f"Searches by meaning may find less than they could: for the model {identity.model_name!r} these texts are "
        f"nearly all alike (mean cosine {alike:.2f}; .03 to .3 is usual){known}. Probably it does not know their "
        "language. Words are found as well as ever. A model that knows the language finds more: the page 'Embedding "
        "models' of the handbook names some, and reembed changes to it."
    )
    return [note]
