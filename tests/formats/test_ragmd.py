"""``.ragmd`` files: out of a store and back, of other programs, and damaged."""

from __future__ import annotations

import base64
import difflib
import hashlib
import json
import re
import shutil

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag import Chunk, Document, Store, prepare_embeddings, update_embeddings
from sqlrag.embedders import HashingEmbedder
from sqlrag.errors import FormatError, ModelMismatchError, NotFoundError, StoreExistsError
from sqlrag.formats import ragmd
from sqlrag.formats.ragmd import export_ragmd, import_ragmd, is_ragmd, read_ragmd, write_ragmd
from tests.support.helpers import FIXTURES, HASHING, ROOT, build, ids, timeless, write
from tests.support.stores import make_small_store

faiss = pytest.importorskip("faiss")

from tests.support.exchange_files import assert_equal_stores, design_file, flat, rows_of, unit  # noqa: E402

QUESTION = "filter by tag"


@pytest.fixture(scope="session")
def handbook(tmp_path_factory):
    path = tmp_path_factory.mktemp("handbook") / "handbook.duckdb"
    return prepare_embeddings(ROOT / "data" / "handbook", path, **HASHING).path


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    path = tmp_path_factory.mktemp("small") / "small.duckdb"
    make_small_store(path)
    return path


@pytest.fixture(scope="session")
def text(small, tmp_path_factory):
    """The small store as a file."""
    path = tmp_path_factory.mktemp("text") / "small.ragmd"
    export_ragmd(small, path)
    return path.read_bytes()


def load(folder, data):
    path = folder / "file.ragmd"
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    with read_ragmd(path) as contents:
        return contents


def section(data, name):
    return re.search(rf"^## {re.escape(name)}\n\n```\w+\n(.*?)\n```$".encode(), data, re.MULTILINE | re.DOTALL)[1]


# There and back.


@pytest.mark.slow
@pytest.mark.parametrize("name", ["handbook", "small"])
def test_a_store_comes_back_the_same(request, name, tmp_path):
    store = request.getfixturevalue(name)
    exported = export_ragmd(store, tmp_path / "a.ragmd")
    imported = import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert_equal_stores(store, tmp_path / "b.duckdb")
    assert sqlrag.check(tmp_path / "b.duckdb") == []
    assert (exported.documents, exported.chunks) == (imported.documents, imported.chunks)
    assert exported.size_bytes == (tmp_path / "a.ragmd").stat().st_size
    export_ragmd(store, tmp_path / "again.ragmd")
    assert (tmp_path / "a.ragmd").read_bytes() == (tmp_path / "again.ragmd").read_bytes()


@pytest.mark.slow
def test_the_conformance_corpus_comes_back_the_same(tmp_path):
    store = prepare_embeddings(ROOT / "data" / "conformance" / "corpus", tmp_path / "a.duckdb", **HASHING).path
    export_ragmd(store, tmp_path / "a.ragmd")
    import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert_equal_stores(store, tmp_path / "b.duckdb")


@pytest.mark.slow
def test_case_I9_the_import_answers_as_the_original(handbook, tmp_path):
    export_ragmd(handbook, tmp_path / "a.ragmd")
    import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    questions = [
        json.loads(line)["text"] for line in (ROOT / "data" / "questions.jsonl").read_text("utf-8").splitlines()
    ]
    with Store(handbook) as one, Store(tmp_path / "b.duckdb") as other:
        for question in questions:
            for mode in ("hybrid_query", "lexical_query", "vector_query"):
                found, again = (timeless(getattr(store, mode)(question)) for store in (one, other))
                assert found == again, (mode, question)


@pytest.mark.slow
def test_case_I9_metadata_keep_their_types(tmp_path):
    front = "---\nyear: 2024\nday: 2024-05-01\nratio: 1.0\nflag: true\nnone: null\ncontent: plain\n---\n# T\n\nduck\n"
    store = build(tmp_path, a_md=front, b_md="---\ncontent: {chunk-0: x, b: [1, 2.5]}\n---\npond\n")
    export_ragmd(store, tmp_path / "a.ragmd")
    import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert_equal_stores(store, tmp_path / "b.duckdb")


@pytest.mark.parametrize(
    "filters",
    [
        {"collection": "notes"},
        {"tags_any": ["birds"]},
        {"metadata": {"year": 2023.5}},
        {"tags_all": ["birds", "water"]},
    ],
)
def test_whole_documents_that_pass_are_exported(small, tmp_path, filters):
    exported = export_ragmd(small, tmp_path / "a.ragmd", **filters)
    assert exported.documents == 1
    assert rows_of(load(tmp_path, (tmp_path / "a.ragmd").read_bytes()))[4:] == (1, exported.chunks)


@pytest.mark.slow
def test_texts_of_any_kind_come_back(tmp_path):
    odd = '## Vectors\n```base64\nAAAA\n```\n---\n\u2028 \x85 \ufeff e\u0301 😀 \x00 \x1b[31m \\ " | </script>\r\n'
    names = ["## Chunks", "```", "---", "a|b\\", "x\ny", "😀.md", '"q"']
    documents = [
        Document(name, odd + name, metadata={"title": odd, "n": 1 << 70, "é": [None, 1e-300]}, tags=(odd,))
        for name in names
    ]
    chunks = [
        Chunk(name, number, odd[:20] if number else odd + name, (odd,), {"k": odd, "chunk_key": f"key{number}"},
              i_start=0, i_end=20 if number else len(odd + name), heading_path=(odd, "a"))
        for name in names for number in range(2)
    ]  # fmt: skip
    with Store.create(tmp_path / "a.duckdb", 5) as store:
        store.upsert(documents, chunks, unit(len(chunks), 5))
    export_ragmd(tmp_path / "a.duckdb", tmp_path / "a.ragmd")
    import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert_equal_stores(tmp_path / "a.duckdb", tmp_path / "b.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize("keys", [("chunk-0", "x"), ("chunk-1", None), ("x", "x"), (1, "y"), ("b", "a")])
def test_metadata_that_look_like_keys_come_back(tmp_path, keys):
    chunks = [
        Chunk("d", number, "duck", metadata={} if key is None else {"chunk_key": key})
        for number, key in enumerate(keys)
    ]
    with Store.create(tmp_path / "a.duckdb", 4) as store:
        store.upsert([Document("d", "", metadata={"content": {"x": 1}})], chunks, unit(2, 4))
    export_ragmd(tmp_path / "a.duckdb", tmp_path / "a.ragmd")
    import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert_equal_stores(tmp_path / "a.duckdb", tmp_path / "b.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sqlrooms", "schema_1"])
def test_an_upgraded_store_comes_back_the_same(tmp_path, name):
    import gzip

    (tmp_path / "a.duckdb").write_bytes(gzip.decompress((FIXTURES / f"{name}.duckdb.gz").read_bytes()))
    sqlrag.upgrade(tmp_path / "a.duckdb")
    export_ragmd(tmp_path / "a.duckdb", tmp_path / "a.ragmd")
    import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    answers = []
    for name in ("a", "b"):
        with duckdb.connect(str(tmp_path / f"{name}.duckdb")) as con:
            rows = con.execute("SELECT * EXCLUDE rid FROM documents ORDER BY node_id").fetchall()
            settings = con.execute("SELECT key, value FROM embedding_metadata ORDER BY key").fetchall()
            sources = con.execute("SELECT * EXCLUDE created_at FROM source_documents ORDER BY doc_id").fetchall()
        # Another program wrote the JSON in another order of its keys.
        texts = [[plain(value) for value in row] for row in (*rows, *sources)]
        answers.append((texts, dict(settings)))
    assert answers[0][0] == answers[1][0]
    settings, imported = answers[0][1], answers[1][1]
    # Both are made anew.
    assert {key for key in settings if settings[key] != imported[key]} <= {"version", "chunk_policy_hash"}


def plain(value):
    """Return JSON parsed, and what llama-index needs of it left out, which an import makes anew."""
    if not (isinstance(value, str) and value.startswith("{")):
        return value
    return {key: part for key, part in json.loads(value).items() if key != "_node_content"}


@pytest.mark.slow
def test_a_store_takes_documents_in_place_of_its_own(small, tmp_path):
    shutil.copy(small, tmp_path / "b.duckdb")
    with Store(tmp_path / "b.duckdb", read_only=False) as store:
        store.upsert([Document("a.md", "other")], [Chunk("a.md", 0, "other")], unit(1, 8))
    export_ragmd(small, tmp_path / "a.ragmd", tags_any=["birds"])
    report = import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert (report.created, report.documents) == (False, 1)
    with duckdb.connect(str(tmp_path / "b.duckdb")) as con:
        con.execute(f"ATTACH '{small}' AS other (READ_ONLY)")
        sql = "SELECT * EXCLUDE rid FROM {}documents ORDER BY node_id"
        assert con.execute(sql.format("")).fetchall() == con.execute(sql.format("other.")).fetchall()


# The file.


def test_S0_02_the_parts_stand_in_order(text):
    lines = text.decode().splitlines()
    assert lines[0] == "---"
    found = [line for line in lines if line.startswith(("## ", "```"))]
    assert found == [
        *("## Documents", "## Chunks", "```json", "```", "## Document Metadata", "```json", "```"),
        *("## Vectors", "```base64", "```"),
    ]


def test_S0_03_the_front_matter_is_plain_yaml(text):
    import yaml

    front = yaml.safe_load(text.decode().split("\n---\n")[0])
    assert list(front)[:9] == [
        *("format_version", "generator", "model_name", "embedding_dim", "vector_count", "document_count", "index_type"),
        *("created_at", "updated_at"),
    ]
    assert (front["format_version"], front["embedding_dim"], front["vector_count"]) == ("1.0", 8, 4)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", front["created_at"])
    index = base64.b64decode(section(text, "Vectors").replace(b"\n", b""), validate=True)
    assert front["vectors_sha256"] == hashlib.sha256(index).hexdigest()
    assert front["normalized"] is True


def test_S0_05_and_S0_06_the_json_is_that_of_the_design(text):
    assert json.loads(section(text, "Chunks"))[3] == {
        "faiss_id": 3,
        "document_id": "notes:c.pdf",
        "chunk_key": "chunk-0",
    }
    documents = json.loads(section(text, "Document Metadata"))
    assert documents["b.md"] == {
        "checksum": "bb",
        "chunks": {"chunk-0": {"faiss_id": 2, "i_start": 0, "i_end": 21, "tags": ["water"]}},
        "content": {},
        "full_text": "goose pond water pond",
        "id": "b.md",
        "metadata": {"year": 2023.5},
        "mime": "text/markdown",
        "source": "b.md",
    }
    assert documents["notes:c.pdf"]["content"] == {"chunk-0": "bread oven"}


def test_S0_07_faiss_reads_the_vectors_and_finds_what_the_vector_leg_finds(handbook, tmp_path):
    export_ragmd(handbook, tmp_path / "a.ragmd")
    data = (tmp_path / "a.ragmd").read_bytes()
    decoded = base64.b64decode(section(data, "Vectors").replace(b"\n", b""), validate=True)
    index = faiss.deserialize_index(np.frombuffer(decoded, np.uint8))
    assert isinstance(index, faiss.IndexFlatIP)
    references = json.loads(section(data, "Chunks"))
    embedder = HashingEmbedder("hashing-64")
    with Store(handbook) as store:
        for question in (QUESTION, "how large is a file", "update a folder", "BM25 score of a phrase"):
            vector = embedder.embed([question], kind="query")
            scores, found = index.search(vector, 10)
            rows = store.vector_query(question, top_k=10, exact=True)
            assert scores[0].tolist() == pytest.approx([row["score"] for row in rows], abs=1e-5)
            names = {f"{references[i]['document_id']}#{references[i]['chunk_key'][6:]}" for i in found[0]}
            # Chunks of equal scores at the end of the list may be others.
            least = rows[-1]["score"] + 1e-5
            assert {row["node_id"] for row in rows if row["score"] > least} <= names


def test_case_C8_vectors_of_any_length_are_written_as_unit_vectors(tmp_path):
    vectors = unit(4, 8)
    index = flat(vectors * np.array([[10], [0.5], [1], [3]], np.float32))
    documents = {
        "d": {"id": "d", "full_text": "abcd", "chunks": {str(i): {"i_start": i, "i_end": i + 1} for i in range(4)}}
    }
    contents = load(tmp_path, design_file("m", index, documents, [("d", str(i)) for i in range(4)]))
    exported = write_ragmd(contents, tmp_path / "unit.ragmd")
    assert exported.notices == ["3 vectors of another length than 1 scaled to length 1."]
    with read_ragmd(tmp_path / "unit.ragmd") as made:
        np.testing.assert_allclose(rows_vectors(made), vectors, atol=1e-6)


def rows_vectors(contents):
    (batch,) = contents.batches
    return batch.vectors


@pytest.mark.rest
def test_a_diff_shows_the_document_that_was_edited(tmp_path):
    files = {f"doc{i}_md": f"# Title {i}\n\nAll about number {i}.\n\n# More\n\nWord{i} and others.\n" for i in range(9)}
    options = {**HASHING, "embed_model_name": "hashing-96"}  # 96 is a multiple of 3: one vector a line
    folder = write(tmp_path / "docs", **files)
    store = prepare_embeddings(folder, tmp_path / "a.duckdb", **options).path
    export_ragmd(store, tmp_path / "a.ragmd")
    (folder / "doc4.md").write_text(files["doc4_md"].replace("others", "zebras"), encoding="utf-8")
    assert update_embeddings(folder, store, embedder=HashingEmbedder("hashing-96")).changed == ["doc4.md"]
    export_ragmd(store, tmp_path / "b.ragmd")
    one, other = ((tmp_path / name).read_text("utf-8").splitlines() for name in ("a.ragmd", "b.ragmd"))
    changed = [line for line in difflib.unified_diff(one, other, n=0) if re.match(r"[-+](?![-+]{2} )", line)]
    names = [re.match(r'[-+] *"?([\w-]+)"?:? ?', line)[1] for line in changed]
    front = {"updated_at", "vectors_sha256", "contents_sha256"}
    document = {"checksum", "full_text", "modified_at", "size_bytes", "chunk-1"}
    base64_lines = [line for line in changed if re.fullmatch(r"[-+][A-Za-z0-9+/=]{512}", line)]
    assert len(base64_lines) == 2  # the vector before and after
    assert {name for name, line in zip(names, changed, strict=True) if line not in base64_lines} <= front | document
    assert len(changed) <= 2 * (len(front) + len(document) + 1)
    assert [line for line in changed if "full_text" in line][1].count("zebras") == 1


def test_the_table_is_for_people_only(text, tmp_path):
    edited = text.replace(b"| a.md | a.md | 2 |", b"| nonsense | x | 99 |")
    assert edited != text
    assert rows_of(load(tmp_path, edited)) == rows_of(load(tmp_path, text))


@pytest.mark.parametrize("name", ["a.ragmd", "a.md", "a"])
def test_S0_01_it_is_known_by_its_front_matter(text, tmp_path, name):
    (tmp_path / name).write_bytes(text)
    assert is_ragmd(tmp_path / name)
    import_ragmd(tmp_path / name, tmp_path / "b.duckdb")
    for other in (b"# Hello\n", b"---\ntitle: x\n---\n", b"", b"---\nformat_version: 1\n", text[1:]):
        (tmp_path / "other.md").write_bytes(other)
        assert not is_ragmd(tmp_path / "other.md")


@pytest.mark.slow
def test_only_files_of_the_kind_are_replaced(small, tmp_path):
    (tmp_path / "notes.md").write_text("# My notes\n", encoding="utf-8")
    with pytest.raises(FormatError, match=r"is not a \.ragmd file, so it is not replaced"):
        export_ragmd(small, tmp_path / "notes.md", overwrite=True)
    assert (tmp_path / "notes.md").read_text("utf-8") == "# My notes\n"
    export_ragmd(small, tmp_path / "a.ragmd")
    with pytest.raises(StoreExistsError):
        export_ragmd(small, tmp_path / "a.ragmd")
    export_ragmd(small, tmp_path / "a.ragmd", tags_any=["birds"], overwrite=True)
    assert [path.name for path in tmp_path.iterdir() if "building" in path.name] == []


@pytest.mark.slow
def test_case_I10_limits_of_size(small, tmp_path, monkeypatch, text):
    monkeypatch.setattr(ragmd, "LARGE_BYTES", 1000)
    exported = export_ragmd(small, tmp_path / "a.ragmd")
    assert "slow to load" in exported.notices[0]
    before = (tmp_path / "a.ragmd").read_bytes()
    monkeypatch.setattr(ragmd, "MAX_BYTES", 2000)
    with pytest.raises(FormatError, match="would be larger than 2,000 bytes"):
        export_ragmd(small, tmp_path / "a.ragmd", overwrite=True)
    assert (tmp_path / "a.ragmd").read_bytes() == before
    with pytest.raises(FormatError, match="more than the limit of 2,000"):
        load(tmp_path, text)
    monkeypatch.setattr(ragmd, "MAX_BYTES", 100)
    with pytest.raises(FormatError, match="over the limit of 100"):
        export_ragmd(small, tmp_path / "b.ragmd")
    assert not (tmp_path / "b.ragmd").exists()


def test_nothing_to_export_is_an_error(small, tmp_path):
    with pytest.raises(FormatError, match="no document to export"):
        export_ragmd(small, tmp_path / "a.ragmd", collection="nowhere")
    assert list(tmp_path.iterdir()) == []


def test_nan_in_metadata_is_not_written(tmp_path):
    with Store.create(tmp_path / "a.duckdb", 4) as store:
        store.upsert([Document("d", "duck")], [Chunk("d", 0, "duck")], unit(1, 4))
        store.cursor().execute("""UPDATE source_documents SET metadata_ = '{"x": NaN}'""")
    with pytest.raises(FormatError, match="NaN"):
        export_ragmd(tmp_path / "a.duckdb", tmp_path / "a.ragmd")


# Files of other programs.


@pytest.fixture
def example():
    """Section 10.1 of the design, with a real index in the place of its abbreviated one."""
    vectors = unit(3, 768)
    index = base64.b64encode(faiss.serialize_index(flat(vectors)).tobytes()).decode()
    return (
        vectors,
        f"""---
format_version: "1.0"
model_name: "nomic-embed-text"
embedding_dim: 768
vector_count: 3
document_count: 1
index_type: "IndexFlatIP"
created_at: "2026-02-14T10:00:00Z"
updated_at: "2026-02-14T10:00:00Z"
---

## Documents

| Document ID | Source | Chunks | Title |
|-------------|--------|--------|-------|
| doc-001 | example.txt | 3 | Sample Document |

## Chunks

```json
[
  {{"faiss_id": 0, "document_id": "doc-001", "chunk_key": "chunk-0"}},
  {{"faiss_id": 1, "document_id": "doc-001", "chunk_key": "chunk-1"}},
  {{"faiss_id": 2, "document_id": "doc-001", "chunk_key": "chunk-2"}}
]
```

## Document Metadata

```json
{{
  "doc-001": {{
    "id": "doc-001",
    "source": "example.txt",
    "full_text": "This is a sample document with multiple chunks for testing.",
    "content": {{}},
    "chunks": {{
      "chunk-0": {{"i_start": 0, "i_end": 20, "faiss_id": 0}},
      "chunk-1": {{"i_start": 20, "i_end": 40, "faiss_id": 1}},
      "chunk-2": {{"i_start": 40, "i_end": 59, "faiss_id": 2}}
    }}
  }}
}}
```

## Vectors

```base64
{index}
```
""",
    )


@pytest.mark.slow
def test_the_example_of_the_design_is_read(example, tmp_path):
    vectors, text = example
    contents = load(tmp_path, text)
    assert contents.settings == {
        "embedding_model": "nomic-embed-text",
        "embedding_dimensions": "768",
        "created_at": "2026-02-14T10:00:00+00:00",
    }
    (batch,) = contents.batches
    assert batch.chunks["text"].to_pylist() == ["This is a sample doc", "ument with multiple ", "chunks for testing."]
    assert batch.chunks["node_id"].to_pylist() == ["doc-001#0", "doc-001#1", "doc-001#2"]
    assert batch.vectors.tobytes() == vectors.tobytes()
    import_ragmd(tmp_path / "file.ragmd", tmp_path / "b.duckdb")
    with Store(tmp_path / "b.duckdb") as store:
        assert ids(store.vector_query("", query_vector=vectors[1], top_k=1)) == ["doc-001#1"]
        assert ids(store.lexical_query("chunks for testing")) == ["doc-001#2"]


def test_a_simple_file_stays_simple(example, tmp_path):
    """What the example holds is written again with nothing but the keys of the design."""
    load(tmp_path, example[1])
    with read_ragmd(tmp_path / "file.ragmd") as contents:
        write_ragmd(contents, tmp_path / "again.ragmd")
    before, after = example[1].encode(), (tmp_path / "again.ragmd").read_bytes()
    for name in ("Chunks", "Document Metadata"):
        made = json.loads(section(after, name))
        for document in made.values() if isinstance(made, dict) else ():
            assert document.pop("metadata") == {}
        assert made == json.loads(section(before, name))


@pytest.mark.slow
@pytest.mark.parametrize("metric", [faiss.METRIC_INNER_PRODUCT, faiss.METRIC_L2])
@pytest.mark.parametrize("as_list", [False, True])
def test_a_file_by_the_algorithm_of_the_design_is_read(tmp_path, metric, as_list):
    vectors = unit(5, 24)
    documents = {
        "talk-2": {
            "id": "talk-2",
            "content": {"bio": "Ada writes programs.", "title": "Engines", "year": 1843},
            "full_text": "",
            "chunks": {"bio": {"faiss_id": 0, "i_start": None, "i_end": None}, "title": {"faiss_id": 3}},
        },
        "doc-1": {
            "id": "doc-1",
            "content": {},
            "full_text": "ducks in ponds 😀 and geese",
            "metadata": {"year": 2024},
            "source": "birds/ducks.txt",
            "chunks": {
                "0": {"faiss_id": 1, "i_start": 0, "i_end": 14},
                "1": {"faiss_id": 2, "i_start": 15, "i_end": 26},
                "note": {"id": 4, "i_start": 17, "i_end": 26},
            },
        },
    }
    refs = [("talk-2", "bio"), ("doc-1", "0"), ("doc-1", "1"), ("talk-2", "title"), ("doc-1", "note")]
    text = design_file("nomic-embed-text", flat(vectors, metric), documents, refs)
    if as_list:
        text = text.replace(json.dumps(documents, indent=2), json.dumps(list(documents.values())))
    contents = load(tmp_path, text)
    (batch,) = contents.batches
    rows = {row["node_id"]: row for row in batch.chunks.to_pylist()}
    assert [(name, rows[name]["text"]) for name in rows] == [
        ("doc-1#0", "ducks in ponds"),
        ("doc-1#1", "😀 and geese"[:11]),
        ("doc-1#2", "and geese"),
        ("talk-2#0", "Ada writes programs."),
        ("talk-2#1", "Engines"),
    ]
    assert batch.vectors.tobytes() == vectors[[1, 2, 4, 0, 3]].tobytes()
    assert json.loads(rows["doc-1#2"]["metadata_"]) == {"chunk_key": "note", "year": 2024}
    # Through a store, keys, fields and all are written again.
    import_ragmd(tmp_path / "file.ragmd", tmp_path / "b.duckdb")
    export_ragmd(tmp_path / "b.duckdb", tmp_path / "again.ragmd")
    again = json.loads(section((tmp_path / "again.ragmd").read_bytes(), "Document Metadata"))
    assert again["talk-2"]["content"] == documents["talk-2"]["content"]
    assert list(again["doc-1"]["chunks"]) == ["0", "1", "note"]
    assert again["doc-1"]["chunks"]["note"] == {"faiss_id": 2, "i_start": 17, "i_end": 26}
    assert again["doc-1"]["metadata"] == {"year": 2024}
    import_ragmd(tmp_path / "again.ragmd", tmp_path / "c.duckdb")
    assert_equal_stores(tmp_path / "b.duckdb", tmp_path / "c.duckdb")


def test_ivf_flat_is_read(tmp_path):
    vectors = unit(300, 8)
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(8), 8, 4, faiss.METRIC_INNER_PRODUCT)
    index.train(vectors)
    index.add(vectors)
    chunks = {f"c{i}": {"faiss_id": i, "i_start": i, "i_end": i + 1} for i in range(300)}
    documents = {"d": {"id": "d", "full_text": "x" * 300, "chunks": chunks}}
    contents = load(tmp_path, design_file("m", index, documents, [("d", key) for key in chunks]))
    assert rows_vectors(contents).tobytes() == vectors.tobytes()


@pytest.mark.slow
@pytest.mark.parametrize("factory", ["PQ4x4", "HNSW8"])
def test_S0_07_other_indexes_are_refused_with_a_reason(tmp_path, factory):
    index = faiss.index_factory(8, factory)
    index.train(unit(300, 8))
    index.add(unit(1, 8))
    documents = {"d": {"id": "d", "full_text": "x", "chunks": {"a": {"i_start": 0, "i_end": 1}}}}
    with pytest.raises(FormatError, match=r"section ## Vectors,? is an Index\w+, which cannot be used"):
        load(tmp_path, design_file("m", index, documents, [("d", "a")]))


def test_keys_that_are_left_out_are_named(example, tmp_path):
    text = example[1].replace('"content": {},', '"content": {}, "language": "en",')
    assert load(tmp_path, text).notices == ["Unknown keys were left out: language."]


def test_the_model_of_another_program_has_to_be_proved(tmp_path):
    embedder = HashingEmbedder("hashing-64")
    texts = ["ducks in ponds", "geese on the lake"]
    chunks = {"0": {"i_start": 0, "i_end": 14}, "1": {"i_start": 15, "i_end": 32}}
    documents = {"d": {"id": "d", "full_text": "\n".join(texts), "chunks": chunks}}
    index = flat(embedder.embed(texts, kind="document"))
    load(tmp_path, design_file("hashing-64", index, documents, [("d", "0"), ("d", "1")]))
    with pytest.raises(ModelMismatchError, match="The vectors of the file are not of"):
        import_ragmd(tmp_path / "file.ragmd", tmp_path / "b.duckdb", embedder=lambda texts: unit(len(texts), 64))
    assert not (tmp_path / "b.duckdb").exists()
    import_ragmd(tmp_path / "file.ragmd", tmp_path / "b.duckdb", embedder=embedder)
    assert ids(sqlrag.vector_query("ducks ponds", tmp_path / "b.duckdb", top_k=1)) == ["d#0"]


# Handed cases.


@pytest.mark.slow
def test_case_I1_lines_that_end_with_dashes(tmp_path):
    model = "a ---"
    with Store.create(tmp_path / "a.duckdb", 4) as store:
        document = Document("d", "duck", collection="title ---", tags=("---",), metadata={"title": "a ---\n---\nb"})
        store.upsert([document], [Chunk("d", 0, "duck", collection="title ---")], unit(1, 4))
        store.cursor().execute("UPDATE embedding_metadata SET value = $1 WHERE key = 'embedding_model'", [model])
    export_ragmd(tmp_path / "a.duckdb", tmp_path / "a.ragmd")
    data = (tmp_path / "a.ragmd").read_bytes()
    for made in (
        data,
        data.replace(b"\n", b"\r\n"),
        b"\xef\xbb\xbf" + data,
        b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"),
    ):
        (tmp_path / "b.ragmd").write_bytes(made)
        assert is_ragmd(tmp_path / "b.ragmd")
        import_ragmd(tmp_path / "b.ragmd", tmp_path / "b.duckdb", overwrite=True)
        assert_equal_stores(tmp_path / "a.duckdb", tmp_path / "b.duckdb")


def test_case_I1_a_wrapped_yaml_value_that_ends_with_dashes(example, tmp_path):
    text = example[1].replace('model_name: "nomic-embed-text"', "model_name: nomic\n  and ---\n  more")
    assert load(tmp_path, text).settings["embedding_model"] == "nomic and --- more"


def test_case_I3_fence_lines_are_no_base64(example, tmp_path):
    _, text = example
    for broken in (
        text.replace("```base64\n", "```base64\nbase64\n"),  # what a parser that keeps the fence would decode
        text.replace("```base64\n", "```base64\n`"),
        text.replace("```base64\n", "```\n"),
        text.replace("```base64\n", "```json\n"),
        text.replace("```base64\n", "").replace("\n```\n\n## Doc", "\n```\n\n## Doc"),
    ):
        assert broken != text
        with pytest.raises(FormatError):
            load(tmp_path, broken)
    wrapped = re.sub(r"(?<=```base64\n)(\S+)", lambda found: "\n".join(re.findall(".{1,76}", found[1])), text)
    assert rows_of(load(tmp_path, wrapped)) == rows_of(load(tmp_path, text))


def test_sections_inside_texts_and_titles_are_none(example, tmp_path):
    _, text = example
    hostile = text.replace("| Sample Document |", "| ## Chunks |\n| ```json [] ``` |").replace(
        "## Chunks\n", "Some words.\n\n## Notes\n\n```json\n## Vectors\n---\n```\n\n## Chunks\n", 1
    )
    assert rows_of(load(tmp_path, hostile)) == rows_of(load(tmp_path, text))
    assert rows_of(load(tmp_path, text.replace("## Vectors", "## Vectors (Base64)"))) == rows_of(load(tmp_path, text))


# Bad input.


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("---\nformat", "--\nformat", "Missing frontmatter"),
        ("Z\"\n---\n\n", "Z\"\n\n", "Missing frontmatter|not valid YAML"),
        ('"1.0"', '"2.0"', "format_version '2.0'"),
        ("embedding_dim: 768\n", "", "lacks embedding_dim"),
        ("model_name", "name", "lacks model_name"),
        ("embedding_dim: 768", "embedding_dim: 767", "embedding_dim is 767, but the file has 768"),
        ("embedding_dim: 768", "embedding_dim: [1]", "embedding_dim must be a whole number"),
        ("vector_count: 3", "vector_count: 4", "vector_count is 4, but the file has 3"),
        ("document_count: 1", "document_count: 2", "document_count is 2"),
        ("vector_count: 3", "vector_count: 3\nvector_count: 3", "more than once"),
        ('"IndexFlatIP"', '"IndexFlatL2"', "index_type is 'IndexFlatL2'"),
        ('"nomic-embed-text"', "!!python/object/apply:os.getcwd []", "not valid YAML"),
        ('"nomic-embed-text"', "{a: 1}", "model_name must be a text"),
        ('"nomic-embed-text"', "&a [*a, *a]", "it has an alias"),
        ("## Chunks", "## Chunk", "section ## Chunks .* is missing"),
        ("## Vectors", "## Document Metadata", "a second section"),
        ('"faiss_id": 1, "document', '"faiss_id": 0, "document', "chunk reference 1 has faiss_id 0"),
        (
            '"document_id": "doc-001", "chunk_key": "chunk-1"',
            '"document_id": "x", "chunk_key": "chunk-1"',
            "names the document 'x', which is missing",
        ),
        ('"chunk_key": "chunk-1"', '"chunk_key": "chunk-9"', "there is no chunk 'chunk-9'"),
        ('"chunk_key": "chunk-1"', '"chunk_key": "chunk-0"', "two chunk references"),
        ('"chunk_key": "chunk-1"', '"chunk_key": ["a"]', "there is no chunk"),
        ('"faiss_id": 1}', '"faiss_id": 2}', "has the faiss_id 2, but is reference 1"),
        ('"id": "doc-001",', '"id": "doc-002",', "has the id 'doc-002'"),
        ('"id": "doc-001",', '"id": "doc-001", "id": "doc-001",', "the key 'id' occurs twice in one object"),
        ('"content": {}', '"content": {"a": NaN}', "NaN is not JSON"),
        ('"content": {}', '"metadata": {"a": 1e999}', "too large"),
        ('"content": {}', '"content": []', "content must be an object"),
        ('"nomic-embed-text"', "!!bool maybe", "not valid YAML"),
        ('"nomic-embed-text"', "!!timestamp x", "not valid YAML"),
        ('"i_start": 0,', '"node_id": "x", "i_start": 0,', "only chunks of an upgraded store"),
        ('"i_start": 0,', '"node_id": 7, "i_start": 0,', "node_id must be a text"),
        ('"content": {}', '"metadata": ' + '{"a":' * 985 + "1" + "}" * 985, "nested too deep"),
        ('"content": {}', '"tags": "a"', "tags must be a list of texts"),
        ('"content": {}', '"page_starts": [-1]', "page_starts must be"),
        ('"content": {}', '"modified_at": "now"', "modified_at is not a time"),
        ('"content": {}', '"body_start": 99999999999', "body_start must be"),
        ('"content": {}', '"chunk_policy": "no"', "chunk_policy must be a string of JSON"),
        ('"content": {}', '"size_bytes": true', "size_bytes must be"),
        ('"full_text": "This', '"full_text": "\\ud800This', "cannot be stored"),
        ('{"i_start": 0, "i_end": 20, "faiss_id": 0}', "null", "there is no chunk 'chunk-0'"),
        ('"i_start": 0, "i_end": 20', '"i_start": null, "i_end": null', "content has no text of this name"),
        ('"i_start": 0,', '"i_start": 0.0,', "i_start must be"),
        ("```json\n[", "```json\n{", "not JSON"),
        ("```json\n[\n", "```json\n" + "[" * 100_000 + "\n", "nested too deep|not JSON"),
        ("```base64\n", "```base64\n!", "contains '!'"),
        ("```base64\n", "```base64\nAAAA", "is not a supported FAISS index"),
    ],
)  # fmt: skip
def test_a_bad_file_is_refused_with_the_place(example, tmp_path, old, new, message):
    _, text = example
    assert text.count(old) >= 1
    place = text.rindex(old) if old == "## Vectors" else text.index(old)
    with pytest.raises(FormatError, match=message) as caught:
        load(tmp_path, text[:place] + new + text[place + len(old) :])
    assert str(tmp_path / "file.ragmd") in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(("start", "end"), [(0, 30), (20, 10), (0, 0), (55, 60), (-1, 5)], ids=str)
def test_places_outside_of_the_text_are_refused(example, tmp_path, start, end):
    _, text = example
    (tmp_path / "a.ragmd").write_text(
        text.replace('"i_start": 0, "i_end": 20', f'"i_start": {start}, "i_end": {end}'), "utf-8"
    )
    if (start, end) == (0, 30):  # chunks may overlap
        import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
        return
    with pytest.raises(FormatError, match="doc-001"):
        import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert not (tmp_path / "b.duckdb").exists()


@pytest.mark.parametrize("row", [np.zeros(768), np.full(768, np.nan), np.full(768, np.inf)])
def test_vectors_that_cannot_be_used_are_refused(example, tmp_path, row):
    vectors, text = example
    vectors = vectors.copy()
    vectors[1] = row
    index = base64.b64encode(faiss.serialize_index(flat(vectors)).tobytes()).decode()
    (tmp_path / "a.ragmd").write_text(re.sub(r"(?<=```base64\n)\S+", index, text), "utf-8")
    with pytest.raises(FormatError, match=r"'doc-001#1' is (zero|not finite)"):
        import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    with read_ragmd(tmp_path / "a.ragmd") as contents, pytest.raises(FormatError, match="zero or not finite"):
        write_ragmd(contents, tmp_path / "c.ragmd")


def test_case_L2_a_pickle_in_the_vectors_is_not_opened(example, tmp_path):
    import pickle

    class Evil:
        def __reduce__(self):
            return (pytest.fail, ("it was opened",))

    data = base64.b64encode(pickle.dumps(Evil())).decode()
    with pytest.raises(FormatError, match="pickle"):
        load(tmp_path, re.sub(r"(?<=```base64\n)\S+", data, example[1]))


@pytest.mark.parametrize("line", ["header_weight: .nan", "header_weight: -1", "stemmer: evil", "max_tokens: many"])
def test_settings_that_cannot_be_used_are_refused(example, tmp_path, line):
    (tmp_path / "a.ragmd").write_text(example[1].replace("---\nformat", f"---\n{line}\nformat"), "utf-8")
    with pytest.raises(FormatError, match="settings of the file cannot be used"):
        import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert not (tmp_path / "b.duckdb").exists()


def test_0_documents_are_refused(example, tmp_path):
    text = design_file("m", faiss.IndexFlatIP(8), {}, [])
    with pytest.raises(FormatError, match="contains no document"):
        load(tmp_path, text)


def test_an_edited_export_is_refused_unless_its_hash_is_taken_out(text, tmp_path):
    edited = text.replace(b"goose pond water pond", b"goose pond water dond")
    with pytest.raises(FormatError, match="changed after they were written"):
        load(tmp_path, edited)
    no_hash = re.sub(rb"contents_sha256: .*\n", b"", edited)
    with pytest.raises(FormatError, match="contents_sha256 is missing"):
        load(tmp_path, no_hash)
    assert "goose pond water dond" in str(
        rows_of(load(tmp_path, re.sub(rb"(generator|vectors_sha256): .*\n", b"", no_hash)))
    )


def test_swapped_vectors_are_found(text, tmp_path):
    block = section(text, "Vectors")
    first, second, third = block.split(b"\n")
    with pytest.raises(FormatError, match="vectors_sha256 differs"):
        load(tmp_path, text.replace(block, b"\n".join([first, second.replace(b"AACAPw", b"AACBPw"), third])))


def test_the_target_stays_as_it_was(small, text, tmp_path):
    shutil.copy(small, tmp_path / "b.duckdb")
    before = (tmp_path / "b.duckdb").read_bytes()
    for cut in range(0, len(text) - 4, 97):
        (tmp_path / "a.ragmd").write_bytes(text[:cut])
        with pytest.raises(FormatError, match=r"a\.ragmd"):
            import_ragmd(tmp_path / "a.ragmd", tmp_path / "b.duckdb")
    assert (tmp_path / "b.duckdb").read_bytes() == before
    with pytest.raises(NotFoundError):
        import_ragmd(tmp_path / "none.ragmd", tmp_path / "b.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ours", "design"])
def test_mutated_files_are_refused_or_read_the_same(text, example, tmp_path, kind):
    """With many more seeds: python tests/support/fuzz_formats.py."""
    from tests.support import fuzz_formats

    refused = fuzz_formats.ragmd(text if kind == "ours" else example[1].encode(), tmp_path, range(400), kind == "ours")
    assert refused > 200
