"""RAGFile v0.1.0: the bytes of the design, searched from the map, back as it was, and never a wrong store."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import struct
from contextlib import suppress

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings

from sqlrag import FormatError, InputError, NotFoundError, Store, StoreExistsError, hybrid_query, lexical_query
from sqlrag.engines.duckdb.lexical import words_of
from sqlrag.formats.exchange import stored_contents
from sqlrag.formats.ragfile import (
    RAGFile,
    export_ragfile,
    import_ragfile,
    is_ragfile,
    read_ragfile,
    write_ragfile,
    writer,
)
from tests.support.exchange_contents import HARD, chunk, contents_of, damages, dumped, hard_contents, source, stored
from tests.support.helpers import build, ids
from tests.support.stores import make_small_store

ORDERS = ["little", "big"]
CHOICES = [(32, "little", 8), (32, "big", 4), (32, "big", 16), (16, "little", 4), (16, "big", 8)]

TEXTS = {
    "ducks_md": "# Ducks\n\nA duck swims in the pond. The duck eats bread, bread.\n\n## Geese\n\nNo duck: a goose.",
    "docs__well-known_md": "---\ndate: 2024-02-03\ntags: [red]\n---\n# Über Enten\n\nDie Ente — 鸭子 — 🦆 schwimmt.\n",
    "oven_txt": "The oven bakes bread. A pond is no oven.\n" * 40,
}


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    """Return a store of four documents in two collections, made from files."""
    return build(tmp_path_factory.mktemp("kb"), options={"chunk_size": 40, "stemmer": "none"}, **TEXTS)


@pytest.fixture(scope="module")
def exported(kb, tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "kb.ragfile"
    export_ragfile(kb, path)
    return path


@pytest.fixture
def hard(tmp_path):
    path = tmp_path / "hard.ragfile"
    write_ragfile(hard_contents(), path)
    return path


# The design's bytes, read by a reader of its own that knows the design and nothing of ours.


def by_the_design(data):
    """Return index, keyword records and vector records of a RAGFile, by the words of the design."""
    assert data[:7] == b"RAGFILE"
    assert tuple(data[7:10]) == (0, 1, 0)
    sign = {0: "<", 1: ">"}[data[10]]
    index, place = {}, 11
    while data[place] != 0:
        end = data.index(b"\0", place)
        name, first, last = re.fullmatch(r"(.+)-\((\d+),(\d+)\)", data[place:end].decode()).groups()
        index[name] = int(first), int(last)
        place = end + 1
    start, end = index["keyword"]
    first, last, padding = struct.unpack(f"{sign}QQB", data[start : start + 17])
    assert (first, last) == (start + 17, end)
    keywords, place = [], first
    while place <= last:
        stop = data.find(b"\0", place, last + 1)
        stop = last + 1 if stop < 0 else stop
        keyword, content = data[place:stop].split(b"-", 1)
        keywords.append((keyword, content))
        following = place + (stop - place) // padding * padding + padding
        assert not any(data[stop : min(following, last + 1)])
        place = following
    start, end = index["vector"]
    precision, first, last, v_padding = struct.unpack(f"{sign}BQQB", data[start : start + 18])
    assert (first, last, v_padding) == (start + 18, end, padding)
    return sign, index, keywords, (precision, first, last, padding)


@pytest.mark.parametrize(("precision", "order", "padding"), CHOICES)
def test_S1_1_to_S1_4_a_reader_of_the_design_finds_everything(kb, tmp_path, precision, order, padding):
    path = tmp_path / "kb.ragfile"
    export_ragfile(kb, path, precision=precision, byte_order=order, padding=padding)
    data = path.read_bytes()
    sign, _, keywords, (bits, first, last, _) = by_the_design(data)
    assert (sign, bits) == ("<" if order == "little" else ">", precision)
    with stored_contents(kb) as contents:
        (batch,) = contents.batches
    chunks = batch.chunks.to_pylist()
    encoded = [(c["node_id"].replace("%", "%25").replace("-", "%2D").encode(), c["text"].encode()) for c in chunks]
    assert keywords[: len(chunks)] == encoded
    width = 64 * precision // 8
    stride = -(-(width + 12) // padding) * padding
    for number in range(len(chunks)):
        record = data[first + number * stride :][: width + 11]
        assert record[:width] == batch.vectors[number].astype(f"{sign}f{precision // 8}").tobytes()
        assert record[width:] == f"-{number:010d}".encode()
    assert last == first + (len(chunks) - 1) * stride + width + 10


def test_S1_2_the_index_rules_of_the_example(exported):
    """Any number of strategies, a single NUL between two, and one between the sections: 4096, NUL, 4098."""
    data = exported.read_bytes()
    entries = data[11 : data.index(b"\0\0", 11)].split(b"\0")
    assert [entry.split(b"-")[0] for entry in entries] == [b"keyword", b"vector", b"sqlrag"]
    spans = [tuple(map(int, re.findall(rb"\d+", entry))) for entry in entries]
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start == end + 2
        assert data[end + 1] == 0
    assert spans[-1][1] == len(data) - 1
    assert not any(data[data.index(b"\0\0", 11) : spans[0][0]])


def made_by_hand(order="little", *, graph=True, padding=4, precision=32, gap=0):
    """Return a file by the design's words alone: two keyword records, two vectors, a graph nobody knows."""
    sign = "<" if order == "little" else ">"
    keyword = padded(b"duck-A duck \xf0\x9f\xa6\x86 - quack", padding) + b"pond-water"
    floats = np.array([[1, 0, 0], [0, 0.5, 0.5]], f"{sign}f{precision // 8}")
    vector = padded(floats[0].tobytes() + b"-first-text", padding) + floats[1].tobytes() + b"-second"
    start = 11 + 120 + gap
    parts, index = b"", b""
    for name, head, body in (
        ("keyword", "QQB", keyword), ("graph", "", b"\x01\0\x02" if graph else b""), ("vector", "BQQB", vector)
    ):  # fmt: skip
        if body:
            size = struct.calcsize(sign + head)
            first, last = start + size, start + size + len(body) - 1
            fields = {"QQB": (first, last, padding), "BQQB": (precision, first, last, padding), "": ()}[head]
            parts += struct.pack(sign + head, *fields) + body + b"\0"
            index += f"{name}-({start},{last})".encode() + b"\0"
            start = last + 2
    beginning = b"RAGFILE\x00\x01\x00" + bytes([order == "big"]) + index
    return beginning.ljust(11 + 120 + gap, b"\0") + parts[:-1]


def padded(record, padding):
    return record + bytes(padding - len(record) % padding)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("precision", [16, 32])
@pytest.mark.parametrize("padding", [4, 8, 16])
def test_files_of_other_writers_are_read(tmp_path, order, precision, padding):
    path = tmp_path / "other.ragfile"
    path.write_bytes(made_by_hand(order, precision=precision, padding=padding))
    with RAGFile(path) as file:
        assert list(file.strategies) == ["keyword", "graph", "vector"]
        assert list(file.iter_records()) == [("duck", "A duck 🦆 - quack"), ("pond", "water")]
        assert [(r.number, r.content) for r in file.search_keyword("pond")] == [(1, "water")]
        assert file.search_keyword("Pond") == []
        with pytest.raises(InputError, match="dimensions="):
            file.search_vector([1, 0, 0])
    with RAGFile(path, dimensions=3) as file:
        vectors, contents = zip(*file.iter_records("vector"), strict=True)
        assert np.array_equal(np.stack(vectors), [[1, 0, 0], [0, 0.5, 0.5]])
        assert contents == ("first-text", "second")
        assert [(r.number, r.content, r.score) for r in file.search_vector([0, 0, 2])] == [
            (1, "second", 0.5), (0, "first-text", 0.0)
        ]  # fmt: skip
    with RAGFile(path, dimensions=4) as file, pytest.raises(FormatError, match="no dash at offset"):
        file.search_vector([1, 0, 0, 0])
    with pytest.raises(FormatError, match="not written by sqlrag"):
        import_ragfile(path, tmp_path / "kb.duckdb")
    assert not (tmp_path / "kb.duckdb").exists()


# Round trips.


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "order", "padding"), CHOICES[:3])
def test_S1_6_a_store_comes_back_as_it_was(kb, tmp_path, precision, order, padding):
    path, again = tmp_path / "kb.ragfile", tmp_path / "again.duckdb"
    report = export_ragfile(kb, path, precision=precision, byte_order=order, padding=padding)
    assert (report.path, report.size_bytes) == (path, path.stat().st_size)
    imported = import_ragfile(path, again)
    assert (imported.documents, imported.chunks, imported.notices) == (report.documents, report.chunks, [])
    with duckdb.connect(again, read_only=True) as con:
        con.execute(f"ATTACH '{kb}' AS old (READ_ONLY)")
        assert stored(con) == stored(con, "old.")
    with Store(again) as store:
        assert store.check() == []


@pytest.mark.slow
def test_the_small_store_comes_back_as_it_was(tmp_path):
    """It has two collections, pages, chunks without offsets, tags and headings of their own."""
    old, path = tmp_path / "old.duckdb", tmp_path / "small.ragfile"
    make_small_store(old)
    export_ragfile(old, path)
    import_ragfile(path, tmp_path / "new.duckdb")
    with duckdb.connect(tmp_path / "new.duckdb", read_only=True) as con:
        con.execute(f"ATTACH '{old}' AS old (READ_ONLY)")
        assert stored(con) == stored(con, "old.")


@pytest.mark.slow
def test_case_I9_the_queries_of_an_imported_store_give_the_same(kb, exported, tmp_path):
    import_ragfile(exported, tmp_path / "again.duckdb")
    words = sorted({word for text in TEXTS.values() for word in words_of([text])[0]})
    for search in (hybrid_query, lexical_query):
        for word in words[::8]:
            old, new = search(word, kb, top_k=5), search(word, tmp_path / "again.duckdb", top_k=5)
            assert [(r["node_id"], r["score"], r["metadata"]) for r in old] == [
                (r["node_id"], r["score"], r["metadata"]) for r in new
            ]


@pytest.mark.parametrize(("precision", "order", "padding"), CHOICES)
def test_any_utf_8_is_carried(tmp_path, precision, order, padding):
    path = tmp_path / "hard.ragfile"
    write_ragfile(hard_contents(), path, precision=precision, byte_order=order, padding=padding)
    given = dumped(hard_contents())
    with read_ragfile(path) as contents:
        found = dumped(contents)
    assert found[:4] == given[:4]
    if precision == 32:
        assert found[4] == given[4]
    else:
        assert np.frombuffer(found[4], "f4") == pytest.approx(np.frombuffer(given[4], "f4"), abs=5e-4)
    with RAGFile(path) as file:
        for text in HARD:
            assert [(r.keyword, r.content) for r in file.search_keyword(f"{text}#0")] == [(f"{text}#0", text)]


@pytest.mark.slow
def test_half_precision_comes_back_at_length_1(kb, tmp_path):
    export_ragfile(kb, tmp_path / "kb.ragfile", precision=16)
    report = import_ragfile(tmp_path / "kb.ragfile", tmp_path / "again.duckdb")
    assert re.search(r"\d+ vectors? of another length than 1 scaled to length 1", str(report))
    with Store(tmp_path / "again.duckdb") as store:
        assert store.check() == []


def test_vectors_that_16_bits_cannot_hold_are_refused(tmp_path):
    for vector in ([1e6, 0.0], [1e-9, 0.0]):
        with pytest.raises(InputError, match="precision=32"):
            write_ragfile(contents_of([source("a", "b")], [chunk("a", 0, "b")], [vector]), tmp_path / "x", precision=16)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("order", ORDERS)
def test_no_documents_at_all(tmp_path, order):
    path = tmp_path / "none.ragfile"
    write_ragfile(contents_of([], [], np.empty((0, 4))), path, byte_order=order)
    by_the_design(path.read_bytes())
    with RAGFile(path) as file:
        assert (len(file), file.dimensions, list(file.iter_records()), list(file.iter_records("vector"))) == (
            0,
            4,
            [],
            [],
        )
        assert file.search_keyword("duck") == file.search_vector([1, 0, 0, 0]) == []
    assert import_ragfile(path, tmp_path / "none.duckdb").documents == 0


def test_the_same_store_gives_the_same_bytes(kb, exported, tmp_path):
    export_ragfile(kb, tmp_path / "again.ragfile")
    assert (tmp_path / "again.ragfile").read_bytes() == exported.read_bytes()


def test_whole_documents_are_chosen_by_filters(kb, tmp_path):
    report = export_ragfile(kb, tmp_path / "red.ragfile", tags_any=["red"])
    assert report.documents == 1
    with RAGFile(tmp_path / "red.ragfile") as file:
        assert file.search_keyword("ente")[0].keyword == "docs/well-known.md#0"
        assert file.search_keyword("oven") == []


@pytest.mark.slow
def test_what_is_there_is_not_replaced_by_chance(kb, exported, tmp_path):
    path = tmp_path / "kb.ragfile"
    path.write_bytes(exported.read_bytes())
    with pytest.raises(StoreExistsError):
        export_ragfile(kb, path)
    export_ragfile(kb, path, overwrite=True, padding=16)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FormatError, match="is not a RAGFile"):
        export_ragfile(kb, tmp_path / "notes.txt", overwrite=True)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["kb.ragfile", "notes.txt"]
    assert is_ragfile(path)
    assert not is_ragfile(tmp_path / "notes.txt")


def test_case_I10_a_failed_export_leaves_what_was_there(hard, tmp_path):
    before = hard.read_bytes()
    with pytest.raises(FormatError, match="blank"):
        write_ragfile(contents_of([source("a", "b")], [chunk("a", 0, " ")], [[1.0, 0.0]]), hard, overwrite=True)
    assert hard.read_bytes() == before
    assert list(tmp_path.iterdir()) == [hard]


@pytest.mark.parametrize("choice", [{"precision": 8}, {"byte_order": "middle"}, {"padding": 5}])
def test_other_choices_are_refused(kb, tmp_path, choice):
    with pytest.raises(InputError, match="must be one of"):
        export_ragfile(kb, tmp_path / "kb.ragfile", **choice)


# Searching.


def test_S1_5_every_word_finds_the_chunks_that_hold_it(kb, exported):
    with stored_contents(kb) as contents:
        (batch,) = contents.batches
    rows = batch.chunks.to_pylist()
    holding = {}
    for row in rows:
        for word in words_of([row["text"] + "\n" + " ".join(row["heading_path"])])[0]:
            holding.setdefault(word, set()).add(row["node_id"])
    with RAGFile(exported) as file:
        for word, wanted in holding.items():
            assert {record.keyword for record in file.search_keyword(word, None)} == wanted, word
        assert file.search_keyword("nowhere") == []


def test_fault_T21_front_matter_is_in_the_index_of_the_file(exported):
    with RAGFile(exported) as file:
        assert [record.keyword for record in file.search_keyword("red")] == ["docs/well-known.md#0"]


def test_the_best_chunks_of_a_word_come_first(kb, exported):
    with RAGFile(exported) as file:
        for word in ("duck", "bread", "pond", "oven", "ente", "goose"):
            wanted = ids(lexical_query(word, kb, top_k=3))
            assert [record.keyword for record in file.search_keyword(word, 3)] == wanted, word
            assert [record.keyword for record in file.search_keyword(word.upper(), 1)] == wanted[:1]
        with pytest.raises(InputError, match="k must be"):
            file.search_keyword("duck", 0)


def test_a_word_in_a_heading_weighs_more(tmp_path):
    """By hand: lengths 5 and 2 + 3 · 1; 1 / (1 + 1.2) for the word in the text, 3 / (3 + 1.2) for that in a heading."""
    chunks = [chunk("a", 0, "pond a b c d"), chunk("a", 1, "no water", heading_path=["Pond"])]
    write_ragfile(contents_of([source("a", "")], chunks, [[1.0, 0.0]] * 2), tmp_path / "x.ragfile")
    with RAGFile(tmp_path / "x.ragfile") as file:
        assert [record.number for record in file.search_keyword("pond")] == [1, 0]


@pytest.mark.slow
def test_words_of_many_chunks_are_listed_whole(tmp_path, monkeypatch):
    """The rows of a word come in several batches."""
    monkeypatch.setattr(writer, "_ROWS", 7)
    chunks = [chunk("a", i, f"duck {'pond ' * (i % 5)}w{i}") for i in range(5000)]
    write_ragfile(contents_of([source("a", "")], chunks, [[1.0, 0.0]] * 5000), tmp_path / "x.ragfile")
    with RAGFile(tmp_path / "x.ragfile") as file:
        assert sorted(record.number for record in file.search_keyword("duck", None)) == list(range(5000))
        ponds = [record.number for record in file.search_keyword("pond", None)]
        assert ponds == sorted((i for i in range(5000) if i % 5), key=lambda i: (-(i % 5), i))


@pytest.mark.parametrize(("precision", "order", "padding"), CHOICES)
def test_vectors_are_found_exactly(tmp_path, precision, order, padding):
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(300, 48)).astype(np.float32)
    vectors[200:] = vectors[:100]  # ties, which the order of the file decides
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    chunks = [chunk("a", i, f"text {i}") for i in range(300)]
    path = tmp_path / "v.ragfile"
    write_ragfile(
        contents_of([source("a", "")], chunks, vectors), path, precision=precision, byte_order=order, padding=padding
    )
    kept = vectors.astype(np.float16) if precision == 16 else vectors
    with RAGFile(path) as file:
        assert file.vectors.base is not None  # a view
        assert np.array_equal(file.vectors, kept)
        for query in rng.normal(size=(20, 48)):
            exact = np.round((kept.astype(np.float64) * (query / np.linalg.norm(query))).sum(axis=1), 9)
            best = np.lexsort((np.arange(300), -exact))[:15]
            found = file.search_vector(query, 15)
            assert [record.number for record in found] == best.tolist()
            assert [record.score for record in found] == exact[best].tolist()
            assert found[0].keyword == f"a#{best[0]}"
            assert found[0].content == f"text {best[0]}"
        assert len(file.search_vector(query, 1000)) == 300
        for bad in (np.zeros(48), np.ones(47), np.full(48, np.nan), "duck"):
            with pytest.raises(InputError, match="finite numbers"):
                file.search_vector(bad)


def test_closing_ends_the_map(exported):
    file = RAGFile(exported)
    row = file.vectors[0]
    with file:
        pass
    assert row.shape == (64,)  # what is still held stays readable
    for use in (
        lambda: file.search_keyword("duck"),
        lambda: file.search_vector(row),
        lambda: list(file.iter_records()),
    ):
        with pytest.raises(InputError, match="closed"):
            use()


# Bad input.


def by_the_published_writer(pairs, vectors, padding):
    """Return what the published writer makes: no room for the index, no NUL after a record of a multiple of padding.

    It puts the sections first and then writes the index over their beginning; its index names the first record and
    the byte after the last one.
    """

    def pad(record):
        return record + bytes(-len(record) % padding)

    data = bytearray(b"RAGFILE\x00\x01\x00\x00")
    body = b"".join(pad(f"{keyword}-{content}".encode()) for keyword, content in pairs)
    first = len(data) + 17
    data += struct.pack("<QQB", first, first + len(body), padding) + body
    index = f"keyword-({first},{len(data)})".encode() + b"\0"
    body = b"".join(pad(np.asarray(v, "<f4").tobytes() + f"-{content}".encode()) for v, content in vectors)
    first = len(data) + 18
    data += struct.pack("<BQQB", 32, first, first + len(body), padding) + body
    index += f"vector-({first},{len(data)})".encode() + b"\0"
    data[11 : 11 + len(index)] = index
    return bytes(data)


PUBLISHED = [
    ("AI", "machines that learn, in many words"),
    ("RAG", "answers from found text"),
    ("Graph", "nodes - edges"),
]


def test_files_of_the_published_writer_are_refused_and_salvaged(tmp_path):
    path = tmp_path / "published.ragfile"
    path.write_bytes(by_the_published_writer(PUBLISHED, [([1, 2], "odd"), ([3, 4], "even one")], 8))
    with pytest.raises(FormatError, match="reserved no space for the index") as caught:
        RAGFile(path)
    assert "28" in str(caught.value)
    with pytest.raises(FormatError, match="reserved no space for the index"):
        import_ragfile(path, tmp_path / "kb.duckdb")
    with RAGFile(path, dimensions=2, salvage=True) as file:
        assert list(file.iter_records()) == PUBLISHED[1:]
        assert [record.content for record in file.search_keyword("Graph")] == ["nodes - edges"]
        assert [(vector.tolist(), content) for vector, content in file.iter_records("vector")] == [
            ([1, 2], "odd"), ([3, 4], "even one")
        ]  # fmt: skip
        assert any("reserved no space for the index" in notice for notice in file.notices)
        assert any("2 keyword records are read" in notice for notice in file.notices)


def test_a_cut_file_is_salvaged(hard, tmp_path):
    data = hard.read_bytes()
    cut = tmp_path / "cut.ragfile"
    cut.write_bytes(data[: len(data) * 2 // 3])
    with pytest.raises(FormatError, match="truncated"):
        RAGFile(cut)
    with RAGFile(cut, salvage=True) as file:
        records = dict(file.iter_records())
        assert {
            records[f"{text}#0".replace("%", "%25").replace("-", "%2D").replace("\0", "%00")] for text in HARD
        } == set(HARD)


def facts_of(data):
    start = int(re.search(rb"sqlrag-\((\d+),", data)[1])
    length = int.from_bytes(data[start : start + 8], "little")
    return start, length, json.loads(data[start + 8 : start + 8 + length])


def signed(data, change):
    """Return a file whose facts are changed, with the length kept by blanks and a digest that fits."""
    start, length, facts = facts_of(data)
    changed = change(facts)
    text = (
        changed
        if isinstance(changed, str)
        else json.dumps(changed or facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    ).encode()
    assert len(text) <= length
    text = text.ljust(length)
    if len(text) != length:
        pytest.fail("the changed facts are longer")
    keyword = int(re.search(rb"keyword-\((\d+),", data)[1])
    vector = int(re.search(rb"vector-\((\d+),", data)[1])
    own = data[start : start + 8] + text
    signature = hashlib.sha256(
        data[:keyword] + data[keyword : keyword + 17] + data[vector : vector + 18] + own
    ).digest()
    return data[:start] + own + signature + data[start + 8 + length + 32 :]


def changed(name, value):
    return lambda facts: facts.update({name: value})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("chunks", 3), "which is not the length of the section"),
        (changed("chunks", -1), "whole numbers"),
        (changed("chunks", 1 << 62), "which is not the length of the section"),
        (changed("dimensions", 9), "dimensions"),
        (changed("dimensions", 1 << 40), "dimensions"),
        (changed("dimensions", 8.0), "whole numbers"),
        (changed("records", 1), "too high or too low"),
        (changed("records", 1 << 60), "too high or too low"),
        (changed("layout", 2), "layout is 2"),
        (changed("settings", {"a": 1}), "must be strings"),
        (changed("settings", []), "does not match the file"),
        (changed("sha256", {}), "does not match the file"),
        (lambda facts: '{"layout": NaN}', "NaN is not JSON"),
        (lambda facts: '{"layout": 1, "layout": 1}', "twice"),
        (lambda facts: "[" * 400, "not JSON|recursion"),
        (lambda facts: "[1]", "does not match the file"),
    ],
)
def test_wrong_facts_are_refused_at_opening(hard, tmp_path, change, message):
    path = tmp_path / "edited.ragfile"
    path.write_bytes(signed(hard.read_bytes(), change))
    with pytest.raises(FormatError, match=message) as caught:
        RAGFile(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (changed("documents", 2), "names 2 documents"),
        (changed("blocks", 0), "its blocks have 0 chunks"),
        (changed("blocks", 7), "cannot be read|damaged|does not have the|beyond the end"),
    ],
)
def test_wrong_counts_are_refused_at_import(hard, tmp_path, change, message):
    path = tmp_path / "edited.ragfile"
    path.write_bytes(signed(hard.read_bytes(), change))
    with pytest.raises(FormatError, match=message):
        import_ragfile(path, tmp_path / "kb.duckdb")
    assert not (tmp_path / "kb.duckdb").exists()


def test_parts_that_were_changed_are_found_and_the_store_stays(kb, hard, tmp_path):
    data = hard.read_bytes()
    spans = {name: tuple(map(int, span)) for name, *span in re.findall(rb"(\w+)-\((\d+),(\d+)\)", data[:150])}
    start, length, _ = facts_of(data)
    target = tmp_path / "kb.duckdb"
    make_small_store(target)
    before = target.read_bytes()
    places = {
        "keyword": spans[b"keyword"][0] + 30, "vector": spans[b"vector"][0] + 20, "tables": start + length + 8 + 32 + 4,
        "blocks": len(data) - 3,
    }  # fmt: skip
    for part, place in places.items():
        edited = tmp_path / f"{part}.ragfile"
        edited.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(FormatError, match=f"the part '{part}'.*SHA-256"):
            import_ragfile(edited, target)
    assert target.read_bytes() == before


def entry(name, *span):
    return f"{name}-({span[0]},{span[1]})".encode() + b"\0"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes"),
        (b"RAGFILE", "is not a RAGFile"),
        (b"\x80\x04cos\nsystem\n(S'true'\ntR.", "does not begin with RAGFILE"),
        (b"PARQUET\x00\x01\x00\x00", "does not begin with RAGFILE"),
        (b"RAGFILE\x00\x02\x00\x00", "version 0.2.0 .offset 7"),
        (b"RAGFILE\x00\x01\x00\x02", "byte order is 2 .offset 10"),
        (b"RAGFILE\x00\x01\x00\x00hello\0", "index of strategies cannot be read from offset 11"),
        (b"RAGFILE\x00\x01\x00\x00" + entry("keyword", 60, 99), "beyond the file's end"),
        (b"RAGFILE\x00\x01\x00\x00" + entry("graph", 60, 10**19), "beyond the file's end"),
        (b"RAGFILE\x00\x01\x00\x00" + entry("graph", 60, 62) * 2 + bytes(60), "twice"),
        (b"RAGFILE\x00\x01\x00\x00" + entry("a", 60, 70) + entry("b", 65, 72) + bytes(60), "into the next one"),
        (b"RAGFILE\x00\x01\x00\x00" + entry("keyword", 60, 80) + bytes(90), "header of the section 'keyword'"),
        (b"RAGFILE\x00\x01\x00\x00" + entry("vector", 60, 62) + bytes(40), "header of the section 'vector'"),
        (b"RAGFILE\x00\x01\x00\x00" + entry("sqlrag", 40, 60) + bytes(40), "truncated"),
        (b"RAGFILE\x00\x01\x00\x00" + entry("keyword", 12, 40) + bytes(40), "reserved no space for the index"),
    ],
)
def test_case_L2_foreign_and_broken_beginnings_are_refused(tmp_path, data, message):
    path = tmp_path / "bad.ragfile"
    path.write_bytes(data)
    with pytest.raises(FormatError, match=message):
        RAGFile(path)


@pytest.mark.parametrize("order", ORDERS)
def test_the_other_byte_order_is_no_silent_import(tmp_path, order):
    path = tmp_path / "hard.ragfile"
    write_ragfile(hard_contents(), path, byte_order=order)
    data = bytearray(path.read_bytes())
    data[10] ^= 1
    path.write_bytes(data)
    with pytest.raises(FormatError, match="header of the section"):
        RAGFile(path)


def test_every_cut_is_noticed(hard, tmp_path):
    data = hard.read_bytes()
    path = tmp_path / "cut.ragfile"
    for size in [*range(0, len(data), 97), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(FormatError):
            RAGFile(path)
    path.write_bytes(data + b"\0")
    with pytest.raises(FormatError, match="after the last section"):
        RAGFile(path)


def test_parts_of_two_files_do_not_mix(hard, tmp_path):
    """The same texts with other vectors: the vector section of one in the other."""
    other = tmp_path / "other.ragfile"
    contents = hard_contents()
    contents.batches[0] = contents.batches[0]._replace(vectors=-contents.batches[0].vectors)
    write_ragfile(contents, other)
    data, twin = hard.read_bytes(), other.read_bytes()
    first, last = (int(n) for n in re.search(rb"vector-\((\d+),(\d+)", data).groups())
    assert len(data) == len(twin)
    mixed = tmp_path / "mixed.ragfile"
    mixed.write_bytes(data[:first] + twin[first : last + 1] + data[last + 1 :])
    with pytest.raises(FormatError, match="the part 'vector'"), read_ragfile(mixed) as found:
        dumped(found)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(NotFoundError, match=r"nothing\.ragfile"):
        import_ragfile(tmp_path / "nothing.ragfile", tmp_path / "kb.duckdb")


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    write_ragfile(hard_contents(), folder / "whole.ragfile")
    return folder / "damaged.ragfile", (folder / "whole.ragfile").read_bytes(), dumped(hard_contents())


@pytest.mark.slow
@settings(max_examples=400, deadline=None, database=None)
@given(damage=damages())
def test_no_damage_gives_other_contents(fuzzed, damage):
    path, data, wanted = fuzzed
    check_damaged(path, damage(data), wanted)


@pytest.mark.slow
@settings(max_examples=200, deadline=None, database=None)
@given(damage=damages())
def test_no_damage_of_another_writers_file_is_a_crash(fuzzed, damage):
    path, *_ = fuzzed
    path.write_bytes(damage(made_by_hand()))
    check_searches(path)


def check_damaged(path, data, wanted):
    """Assert that a damaged file is refused, or means what the whole one does."""
    path.write_bytes(data)
    try:
        with read_ragfile(path) as contents:
            found = dumped(contents)
    except FormatError:
        pass
    else:
        assert found == wanted
    check_searches(path)


def check_searches(path):
    for salvage in (False, True):
        with suppress(FormatError, InputError), RAGFile(path, dimensions=3, salvage=salvage) as file:
            file.search_keyword("duck")
            list(file.iter_records())
            file.search_vector([1.0] * (file.dimensions or 3))


class TestWrongArguments:
    @pytest.mark.slow
    @pytest.mark.parametrize("wrong", [None, 0, 1.5, b"x", [], {}, True])
    def test_of_a_reader(self, tmp_path, wrong):
        path = export_ragfile(build(tmp_path, a_md="alpha"), tmp_path / "kb.ragfile").path
        with RAGFile(path) as file:
            for call in (
                lambda: file.search_keyword(wrong),
                lambda: file.search_keyword("alpha", wrong if wrong is not None else 0),
                lambda: file.search_vector(file.vectors[0], wrong),
                lambda: file.record(wrong if wrong != 0 else -1),
            ):
                with pytest.raises(InputError):
                    call()
            assert file.search_keyword("\ud800") == []
