"""FAISS's serialised indexes without faiss: flat ones are read and written, IVFFlat read, all others named."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from sqlrag.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqlrag.types import Vectors

Metric = Literal["ip", "l2"]

# Four letters, dimensions, vectors, two numbers that nobody reads, is_trained, metric.
_INDEX = struct.Struct("<4siqqq?i")
_SIZE = struct.Struct("<Q")
_UNREAD = 1 << 20
HEADER_SIZE = _INDEX.size + _SIZE.size
"""Bytes before the floats of a flat index: 45."""

_METRICS: dict[int, Metric] = {0: "ip", 1: "l2"}
_FLAT = {b"IxFI": "IndexFlatIP", b"IxF2": "IndexFlatL2", b"IxFl": "IndexFlat"}
_MAX_DIMENSIONS = 1 << 20

_SHARED_REASON = "it holds shortened vectors, of which the originals cannot be restored"
_GRAPH_REASON = "it holds a graph that is larger than the vectors; only flat indexes are for exchange"
_OTHERS = {
    **dict.fromkeys((b"IxPq", b"IxPo", b"IxPQ"), ("IndexPQ", _SHARED_REASON)),
    **dict.fromkeys((b"IvPQ", b"IwPQ", b"IwQR", b"IvQR"), ("IndexIVFPQ", _SHARED_REASON)),
    **dict.fromkeys((b"IPfs", b"IwPf"), ("IndexPQFastScan", _SHARED_REASON)),
    **dict.fromkeys((b"IxSQ", b"IwSq", b"IwSQ"), ("IndexScalarQuantizer", _SHARED_REASON)),
    **dict.fromkeys((b"IxRq", b"IxRQ", b"IwRq", b"IwRQ"), ("IndexResidualQuantizer", _SHARED_REASON)),
    **dict.fromkeys((b"IxHE", b"IxHe"), ("IndexLSH", _SHARED_REASON)),
    **dict.fromkeys((b"IHNf", b"IHNp", b"IHNs", b"IHN2", b"IHNc", b"IHNC", b"IHc2"), ("IndexHNSW", _GRAPH_REASON)),
    **dict.fromkeys((b"INSf", b"INNf"), ("IndexNSG", _GRAPH_REASON)),
    **dict.fromkeys((b"IxMp", b"IxM2"), ("IndexIDMap", "its ids are numbers of its own and not places")),
    b"IxPT": ("IndexPreTransform", "its vectors are transformed"),
    b"IwFd": ("IndexIVFFlatDedup", "it holds equal vectors once"),
    b"IxRF": ("IndexRefine", "it holds two indexes"),
}
_REMEDY = "Copy the vectors into an IndexFlatIP with faiss (reconstruct_n) and write that."


class FlatIndex(NamedTuple):
    """The vectors of an index in the order of their ids, ``[n, dimensions] float32``, and how it compares them."""

    name: str
    metric: Metric
    vectors: Vectors


def is_index(beginning: bytes) -> bool:
    """Return whether the first bytes of a file are those of an index that can be read."""
    return beginning[:4] in _FLAT or beginning[:4] == b"IwFl"


def flat_header(count: int, dimensions: int) -> bytes:
    """Return the 45 bytes of an IndexFlatIP before its floats (float32, little endian, row after row)."""
    return _INDEX.pack(b"IxFI", dimensions, count, _UNREAD, _UNREAD, True, 0) + _SIZE.pack(count * dimensions)


def read_flat_index(data: NDArray[np.uint8], where: str) -> FlatIndex:
    """Return the vectors of a serialised index.

    Parameters
    ----------
    data
        ``[bytes] uint8``, as ``faiss.serialize_index`` gives it and ``faiss.write_index`` writes it.
    where
        What the index is called in messages.

    Returns
    -------
    FlatIndex
        Of a flat index a view of ``data``, where the floats lie at an address that numpy can use.

    Raises
    ------
    FormatError
        It is cut short, inconsistent, of another kind than IndexFlatIP, IndexFlatL2 and IndexIVFFlat, or no index.
    """
    reader = _Reader(data, where)
    code = reader.code()
    if code in _FLAT:
        dimensions, count, metric = _flat_shape(reader)
        floats = reader.array("<f4", count * dimensions).reshape(count, dimensions)
        index = FlatIndex(_FLAT[code], metric, np.require(floats, np.float32, "A"))
    elif code == b"IwFl":
        index = _read_ivf(reader)
    else:
        raise _other(code, where)
    if reader.place != len(data):
        raise reader.error(f"{len(data) - reader.place:,} bytes follow the index")
    return index


class _Reader:
    """Takes values off a block of bytes, never more than there are."""

    def __init__(self, data: NDArray[np.uint8], where: str) -> None:
        self.data = data
        self.where = where
        self.place = 0

    def error(self, what: str, why: str = "It is cut short or was edited") -> FormatError:
        return FormatError(f"{self.where}, byte {self.place}: {what}. {why}; export it again.")

    def code(self) -> bytes:
        return self.data[self.place : self.place + 4].tobytes()

    def take(self, count: int) -> NDArray[np.uint8]:
        left = len(self.data) - self.place
        if count > left:
            raise self.error(f"the index needs {count:,} bytes more, but there are {left:,}")
        self.place += count
        return self.data[self.place - count : self.place]

    def size(self) -> int:
        return int.from_bytes(self.take(8).tobytes(), "little")

    def array(self, kind: str, count: int) -> NDArray[np.generic]:
        return self.take(count * np.dtype(kind).itemsize).view(kind)


def _read_header(reader: _Reader) -> tuple[int, int, Metric]:
    """Return dimensions, number of vectors and metric of any index."""
    place = reader.place
    _, dimensions, count, _, _, trained, metric = _INDEX.unpack(reader.take(_INDEX.size).tobytes())
    reader.place = place  # for the messages
    if not 0 < dimensions <= _MAX_DIMENSIONS or count < 0:
        raise reader.error(f"an index of {count} vectors of {dimensions} dimensions")
    if metric not in _METRICS:
        raise reader.error(f"it compares by metric {metric}", "Only inner product and L2 can be used")
    if not trained:
        raise reader.error("the index was not trained")
    reader.place = place + _INDEX.size
    return dimensions, count, _METRICS[metric]


def _flat_shape(reader: _Reader) -> tuple[int, int, Metric]:
    """Return dimensions, number of vectors and metric of a flat index, whose floats come next."""
    code = reader.code()
    if code not in _FLAT:
        raise _other(code, reader.where)
    dimensions, count, metric = _read_header(reader)
    if _FLAT[code] == f"IndexFlat{'IP' if metric == 'l2' else 'L2'}":
        raise reader.error(f"an {_FLAT[code]} that compares by the other metric")
    if reader.size() != count * dimensions:
        raise reader.error(f"another number of floats than {count} vectors of {dimensions} dimensions have")
    return dimensions, count, metric


def _read_ivf(reader: _Reader) -> FlatIndex:
    """Read inverted lists of whole vectors: faiss itself does not check them, and crashes on edited ones."""
    dimensions, count, metric = _read_header(reader)
    lists = reader.size()
    reader.size()  # nprobe
    dimensions_of_centroids, centroids, _ = _flat_shape(reader)
    reader.take(4 * dimensions_of_centroids * centroids)
    _skip_direct_map(reader)
    if reader.take(4).tobytes() != b"ilar" or reader.size() != lists or reader.size() != 4 * dimensions:
        raise reader.error("no inverted lists of whole vectors")
    lengths = _list_lengths(reader, lists)
    left = len(reader.data) - reader.place
    if sum(lengths) != count or left != count * (4 * dimensions + 8):
        raise reader.error(f"lists of {sum(lengths):,} vectors in {left:,} bytes; the index names {count:,} vectors")
    vectors = np.empty((count, dimensions), np.float32)
    seen = np.zeros(count, np.bool_)
    for length in lengths:
        floats = reader.array("<f4", length * dimensions).reshape(length, dimensions)
        ids = reader.array("<i8", length).astype(np.int64)
        if length and not (ids.min() >= 0 and ids.max() < count):
            raise reader.error(f"an id that is none of the {count} places", "Its ids are numbers of its own or damaged")
        vectors[ids] = floats
        seen[ids] = True
    if not seen.all():
        raise reader.error(f"{count - int(seen.sum())} of {count} vectors are missing")
    return FlatIndex("IndexIVFFlat", metric, vectors)


def _skip_direct_map(reader: _Reader) -> None:
    kind = int(reader.take(1)[0])
    reader.take(8 * reader.size())
    if kind == 2:
        reader.take(16 * reader.size())
    elif kind > 2:
        raise reader.error(f"a direct map of kind {kind}")


def _list_lengths(reader: _Reader, lists: int) -> list[int]:
    """Return how many vectors each of the inverted lists holds that follow."""
    kind = reader.take(4).tobytes()
    numbers = reader.array("<u8", reader.size()).tolist()
    if kind == b"full" and len(numbers) == lists:
        return [int(length) for length in numbers]
    if kind == b"sprs" and len(numbers) % 2 == 0:  # number of the list and its length
        return [int(length) for length in numbers[1::2]]
    raise reader.error("another number of inverted lists than the index has")


def _other(code: bytes, where: str) -> FormatError:
    if code[:1] == b"\x80" or code in (b"PK\x03\x04", b"\x93NUM"):
        return FormatError(
            f"{where} is no FAISS index but a pickle, an archive or an array, which is never opened. "
            "Export the vectors as an IndexFlatIP."
        )
    name, reason = _OTHERS.get(code, ("", ""))
    if name:
        return FormatError(f"{where} is an {name}, which cannot be used: {reason}. {_REMEDY}")
    return FormatError(
        f"{where} is no FAISS index that can be read: it begins with {code!r}. IndexFlatIP, IndexFlatL2 and "
        f"IndexIVFFlat can be. {_REMEDY}"
    )
