"""FAISS's serialized indexes without faiss: reads and writes flat ones, reads IVFFlat, refuses others by name."""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from sqlrag.errors import FormatError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sqlrag.types import Vectors

Metric = Literal["ip", "l2"]

# Four letters, dimensions, vectors, two unused numbers, is_trained, metric.
_INDEX = struct.Struct("<4siqqq?i")

_SIZE = struct.Struct("<Q")

_UNUSED = 1 << 20

HEADER_SIZE = _INDEX.size + _SIZE.size

"""Bytes before the floats of a flat index: 45."""

_METRICS: dict[int, Metric] = {0: "ip", 1: "l2"}

_FLAT = {b"IxFI": "IndexFlatIP", b"IxF2": "IndexFlatL2", b"IxFl": "IndexFlat"}

_MAX_DIMENSIONS = 1 << 20

_SHARED_REASON = "it has compressed vectors, whose originals cannot be restored"

_GRAPH_REASON = "it has a graph that is larger than the vectors; only flat indexes can be exchanged"

_OTHERS = {
    **dict.fromkeys((b"IxPq", b"IxPo", b"IxPQ"), ("IndexPQ", _SHARED_REASON)),
    **dict.fromkeys((b"IvPQ", b"IwPQ", b"IwQR", b"IvQR"), ("IndexIVFPQ", _SHARED_REASON)),
    **dict.fromkeys((b"IPfs", b"IwPf"), ("IndexPQFastScan", _SHARED_REASON)),
    **dict.fromkeys((b"IxSQ", b"IwSq", b"IwSQ"), ("IndexScalarQuantizer", _SHARED_REASON)),
    **dict.fromkeys((b"IxRq", b"IxRQ", b"IwRq", b"IwRQ"), ("IndexResidualQuantizer", _SHARED_REASON)),
    **dict.fromkeys((b"IxHE", b"IxHe"), ("IndexLSH", _SHARED_REASON)),
    **dict.fromkeys((b"IHNf", b"IHNp", b"IHNs", b"IHN2", b"IHNc", b"IHNC", b"IHc2"), ("IndexHNSW", _GRAPH_REASON)),
    **dict.fromkeys((b"INSf", b"INNf"), ("IndexNSG", _GRAPH_REASON)),
    **dict.fromkeys((b"IxMp", b"IxM2"), ("IndexIDMap", "its ids are arbitrary numbers and not positions")),
    b"IxPT": ("IndexPreTransform", "its vectors are transformed"),
    b"IwFd": ("IndexIVFFlatDedup", "it stores equal vectors once"),
    b"IxRF": ("IndexRefine", "it contains two indexes"),
}

_REMEDY = "Copy the vectors into an IndexFlatIP with faiss (reconstruct_n) and write that."


class FlatIndex(NamedTuple):
    """The vectors of an index in the order of their ids, ``[n, dimensions] float32``, and its metric."""

    name: str
    metric: Metric
    vectors: Vectors


def is_index(beginning: bytes) -> bool:
    """Return whether the first bytes of a file are those of an index that can be read."""
    return beginning[:4] in _FLAT or beginning[:4] == b"IwFl"


def flat_header(count: int, dimensions: int) -> bytes:
    """Return the 45 bytes of an IndexFlatIP before its floats (float32, little endian, row after row)."""
    return _INDEX.pack(b"IxFI", dimensions, count, _UNUSED, _UNUSED, True, 0) + _SIZE.pack(count * dimensions)


def flat_parts(vectors: Vectors) -> tuple[bytes, memoryview]:
    """Return the bytes of an IndexFlatIP of unit vectors: the header and the floats."""
    floats = np.ascontiguousarray(vectors, "<f4").data.cast("B") if len(vectors) else memoryview(b"")
    return flat_header(*vectors.shape), floats


def flat_sha256(head: bytes, floats: memoryview) -> str:
    """Return the SHA-256 of an index, from the parts of :func:`flat_parts`."""
    digest = hashlib.sha256(head)
    digest.update(floats)
    return digest.hexdigest()


def read_flat_index(data: NDArray[np.uint8], where: str) -> FlatIndex:
    """Return the vectors of a serialized index.

    Parameters
    ----------
    data
        ``[bytes] uint8``, as from ``faiss.serialize_index`` or ``faiss.write_index``.
    where
        The name of the index in messages.

    Returns
    -------
    FlatIndex
        For a flat index a view of ``data``, if the floats are aligned.

    Raises
    ------
    FormatError
        It is truncated, inconsistent, not an index, or not an IndexFlatIP, IndexFlatL2 or IndexIVFFlat.
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
    """Reads values from a block of bytes, with a check of its length."""

    def __init__(self, data: NDArray[np.uint8], where: str) -> None:
        self.data = data
        self.where = where
        self.place = 0

    def error(self, what: str, why: str = "It is truncated or was edited") -> FormatError:
        return FormatError(f"{self.where}, byte {self.place}: {what}. {why}; export it again.")

    def code(self) -> bytes:
        return self.data[self.place : self.place + 4].tobytes()

    def take(self, count: int) -> NDArray[np.uint8]:
        left = len(self.data) - self.place
        if count > left:
            raise self.error(f"the index needs {count:,} more bytes, but there are {left:,}")
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
        raise reader.error(f"the metric is {metric}", "Only inner product and L2 can be used")
    if not trained:
        raise reader.error("the index was not trained")
    reader.place = place + _INDEX.size
    return dimensions, count, _METRICS[metric]


def _flat_shape(reader: _Reader) -> tuple[int, int, Metric]:
    """Return dimensions, number of vectors and metric of a flat index, whose floats follow."""
    code = reader.code()
    if code not in _FLAT:
        raise _other(code, reader.where)
    dimensions, count, metric = _read_header(reader)
    if _FLAT[code] == f"IndexFlat{'IP' if metric == 'l2' else 'L2'}":
        raise reader.error(f"an {_FLAT[code]} with the other metric")
    if reader.size() != count * dimensions:
        raise reader.error(f"the number of floats is not that of {count} vectors of {dimensions} dimensions")
    return dimensions, count, metric


def _read_ivf(reader: _Reader) -> FlatIndex:
    """Read inverted lists of whole vectors: faiss does not validate them, and crashes on edited ones."""
    dimensions, count, metric = _read_header(reader)
    lists = reader.size()
    reader.size()  # nprobe
    dimensions_of_centroids, centroids, _ = _flat_shape(reader)
    reader.take(4 * dimensions_of_centroids * centroids)
    _skip_direct_map(reader)
    if reader.take(4).tobytes() != b"ilar" or reader.size() != lists or reader.size() != 4 * dimensions:
        raise reader.error("the inverted lists are not of whole vectors")
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
            raise reader.error(f"an id is not one of the {count} positions", "Its ids are arbitrary numbers or damaged")
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
    """Return the lengths of the inverted lists that follow."""
    kind = reader.take(4).tobytes()
    numbers = reader.array("<u8", reader.size()).tolist()
    if kind == b"full" and len(numbers) == lists:
        return [int(length) for length in numbers]
    if kind == b"sprs" and len(numbers) % 2 == 0:  # number of the list and its length
        return [int(length) for length in numbers[1::2]]
    raise reader.error("the number of inverted lists is not that of the index")


def _other(code: bytes, where: str) -> FormatError:
    if code[:1] == b"\x80" or code in (b"PK\x03\x04", b"\x93NUM"):
        return FormatError(
            f"{where} is not a FAISS index but a pickle, an archive or an array, which is never opened. "
            "Export the vectors as an IndexFlatIP."
        )
    name, reason = _OTHERS.get(code, ("", ""))
    if name:
        return FormatError(f"{where} is an {name}, which cannot be used: {reason}. {_REMEDY}")
    return FormatError(
        f"{where} is not a supported FAISS index: it starts with {code!r}. Supported are IndexFlatIP, IndexFlatL2 and "
        f"IndexIVFFlat. {_REMEDY}"
    )
