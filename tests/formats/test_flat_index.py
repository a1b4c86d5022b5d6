"""FAISS's serialisation, read and written without faiss: compared with faiss itself, bit for bit."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from sqlrag.errors import FormatError
from sqlrag.formats.flat_index import HEADER_SIZE, flat_header, is_index, read_flat_index
from sqlrag.formats.ragmd import decode_lines, encode_lines

faiss = pytest.importorskip("faiss")

from tests.support.exchange_files import flat, unit  # noqa: E402


def serialized(index):
    return faiss.serialize_index(index)


def read(data):
    return read_flat_index(np.frombuffer(bytes(data), np.uint8), "the index")


@pytest.mark.parametrize("count", [0, 1, 7, 300])
@pytest.mark.parametrize("dimensions", [1, 3, 8, 768])
def test_faiss_writes_the_same_bytes(count, dimensions):
    vectors = unit(count, dimensions) if count else np.empty((0, dimensions), np.float32)
    assert HEADER_SIZE == 45
    assert serialized(flat(vectors)).tobytes() == flat_header(count, dimensions) + vectors.tobytes()


def test_case_I5_faiss_reads_what_is_written_as_uint8():
    vectors = unit(9, 12)
    data = flat_header(9, 12) + vectors.tobytes()
    index = faiss.deserialize_index(np.frombuffer(data, np.uint8))
    assert type(index) is faiss.IndexFlatIP
    assert (index.ntotal, index.d, index.metric_type) == (9, 12, faiss.METRIC_INNER_PRODUCT)
    assert index.reconstruct_n(0, 9).tobytes() == vectors.tobytes()


@pytest.mark.parametrize(("metric", "name"), [(0, "IndexFlatIP"), (1, "IndexFlatL2")])
def test_flat_indexes_are_read_bit_for_bit(metric, name):
    vectors = unit(20, 7) * 3
    index = read(serialized(flat(vectors, metric)))
    assert (index.name, index.metric) == (name, ("ip", "l2")[metric])
    assert index.vectors.tobytes() == vectors.tobytes()


@pytest.mark.parametrize("metric", [0, 1])
@pytest.mark.parametrize("direct_map", [0, 1, 2])
@pytest.mark.parametrize("count", [3, 400])
def test_ivf_flat_is_read_in_the_order_of_ids(metric, direct_map, count):
    vectors = unit(400, 16)
    index = faiss.IndexIVFFlat(faiss.IndexFlat(16, metric), 16, 10, metric)
    index.train(vectors)
    index.add(vectors[:count])
    index.set_direct_map_type(direct_map)
    made = read(serialized(index))
    assert (made.name, made.metric) == ("IndexIVFFlat", ("ip", "l2")[metric])
    assert made.vectors.tobytes() == vectors[:count].tobytes()


def test_ivf_flat_with_ids_of_its_own_is_refused():
    vectors = unit(400, 16)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(16), 16, 4)
    index.train(vectors)
    index.add_with_ids(vectors, np.arange(100, 500))
    with pytest.raises(FormatError, match="an id is not one of the 400 positions"):
        read(serialized(index))
    twice = faiss.IndexIVFFlat(faiss.IndexFlatL2(16), 16, 4)
    twice.train(vectors)
    twice.add_with_ids(vectors[:5], np.array([0, 1, 1, 3, 4]))
    with pytest.raises(FormatError, match="1 of 5 vectors are missing"):
        read(serialized(twice))


@pytest.mark.parametrize(
    ("factory", "name"),
    [
        ("PQ4x4", "IndexPQ"),
        ("IVF4,PQ4x4", "IndexIVFPQ"),
        ("HNSW8", "IndexHNSW"),
        ("SQ8", "IndexScalarQuantizer"),
        ("IVF4,SQ8", "IndexScalarQuantizer"),
        ("LSH", "IndexLSH"),
        ("IDMap,Flat", "IndexIDMap"),
        ("IDMap2,Flat", "IndexIDMap"),
        ("PCA8,Flat", "IndexPreTransform"),
        ("NSG8", "IndexNSG"),
        ("Flat,RFlat", "IndexRefine"),
    ],
)
def test_others_are_refused_with_name_and_reason(factory, name):
    index = faiss.index_factory(16, factory)
    index.train(unit(300, 16))
    with pytest.raises(FormatError, match=f"{name}, which cannot be used: .*IndexFlatIP"):
        read(serialized(index))


def test_case_L2_a_pickle_is_never_opened():
    import pickle

    with pytest.raises(FormatError, match="pickle"):
        read(pickle.dumps({"a": 1}))
    with pytest.raises(FormatError, match="not a supported FAISS index"):
        read(b"hello, world, this is nothing")


def test_lengths_are_checked_before_anything_is_allocated():
    head = flat_header(3, 4)
    for place, size in ((4, 4), (8, 8), (37, 8)):  # dimensions, vectors, floats
        for value in (0, 1, (1 << 8 * size - 1) - 1, (1 << 8 * size) - 1):
            data = bytearray(head + bytes(48))
            data[place : place + size] = value.to_bytes(size, "little")
            with pytest.raises(FormatError):
                read(data)
    huge = struct.pack("<4siqqq?iQ", b"IxFI", 1 << 19, 1 << 40, 0, 0, True, 0, 1 << 59) + bytes(100)
    with pytest.raises(FormatError, match="needs"):
        read(huge)


@pytest.mark.parametrize("cut", [0, 3, 4, 44, 45, 46, 92])
def test_a_cut_or_longer_index_is_refused(cut):
    data = flat_header(3, 4) + bytes(48)
    with pytest.raises(FormatError, match=r"byte|not a supported FAISS index"):
        read(data[:cut])
    with pytest.raises(FormatError, match="1 bytes follow"):
        read(data + b"x")


def test_mutated_ivf_indexes_are_read_or_refused():
    """Faiss itself crashes on some of them."""
    vectors = unit(60, 4)
    index = faiss.IndexIVFFlat(faiss.IndexFlatL2(4), 4, 4)
    index.train(vectors)
    index.add(vectors)
    data = serialized(index).tobytes()
    rng = random.Random(7)
    refused = 0
    for _ in range(500):
        made = bytearray(data)
        for _ in range(rng.choice((1, 2, 5))):
            made[rng.choice((rng.randrange(300), rng.randrange(len(made))))] = rng.randrange(256)
        try:
            assert read(made).vectors.shape[1] == 4
        except FormatError:
            refused += 1
    assert 100 < refused < 500
    assert is_index(data)
    assert not is_index(b"")


# Base64.


@pytest.mark.parametrize("size", [0, 1, 2, 3, 44, 45, 46, 3000, 786_432, 1_000_001])
@pytest.mark.parametrize("width", [3, 57, 3072])
def test_base64_is_that_of_the_standard_library(size, width):
    import base64

    data = np.random.default_rng(size).bytes(size)
    if size > 100_000 and width < 100:
        width = 300
    text = b"".join(encode_lines(memoryview(data), width))
    assert base64.b64decode(text.replace(b"\n", b""), validate=True) == data
    assert {len(line) for line in text.split(b"\n")[:-2]} <= {width // 3 * 4}
    for other in (text, text.replace(b"\n", b"\r\n"), text.replace(b"\n", b""), b" \n" + text.replace(b"A", b"\nA")):
        assert decode_lines(memoryview(other), "it").tobytes() == data


@pytest.mark.parametrize(
    "text", [b"AAA", b"A", b"AAA=AAAA", b"AA=A", b"AAA-", b"AAA`", b"====", b"AAAA=", b"AB==", b"\xff" * 4]
)
def test_what_is_no_base64_is_refused(text):
    for before in (b"", b"AAAA" * 3, b"AAAA" * 100_000):
        with pytest.raises(FormatError, match=r"^it (contains|ends)"):
            decode_lines(memoryview(before + text), "it")
