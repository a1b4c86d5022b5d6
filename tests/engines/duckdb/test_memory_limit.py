"""DuckDB's memory: the limit that users set, what happens when it is reached, and what vectors take in the file."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

from sqlrag import Chunk, Document, InputError, Store, StoreError, compact, prepare_embeddings, reembed, upgrade
from sqlrag.cli import app
from sqlrag.engines.duckdb import legs
from sqlrag.engines.duckdb.database import Database
from tests.support.helpers import HASHING, ids, write
from tests.support.stores import POND, make_small_store

WRONG = ["", "2", "GB", "2 apples", "-1GB", "80%", "1e3MB", "63MB", "0GB", 2, 2.5, True, b"2GB", ["2GB"]]


@pytest.fixture
def path(tmp_path):
    make_small_store(tmp_path / "small.duckdb")
    return tmp_path / "small.duckdb"


def limit_of(store):
    return store.cursor().execute("SELECT current_setting('memory_limit')").fetchall()[0][0]


# DuckDB shows binary units rounded to a decimal: 250e6 / 2**20 = 238.4 and 2e9 / 2**30 = 1.86.
@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("250MB", "238.4 MiB"),
        ("2GB", "1.8 GiB"),
        (" 1.5 gib ", "1.5 GiB"),
        ("64MB", "61.0 MiB"),
        ("0.5TB", "465.6 GiB"),
    ],
)
def test_the_limit_reaches_duckdb(path, tmp_path, given, shown):
    with Store(path, memory_limit=given) as store:
        assert limit_of(store) == shown
    with Store.create(tmp_path / "new.duckdb", 8, memory_limit=given) as store:
        assert limit_of(store) == shown


def test_without_a_limit_duckdbs_own_holds(path):
    with Store(path) as store, duckdb.connect() as other:
        assert limit_of(store) == other.execute("SELECT current_setting('memory_limit')").fetchall()[0][0]


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_size_is_refused_before_anything_is_made(path, tmp_path, wrong):
    docs = write(tmp_path / "docs", a_md="# One\n\ntext")
    before = {file.name for file in tmp_path.iterdir()}
    calls = [
        lambda: Store(path, memory_limit=wrong),
        lambda: Store.create(tmp_path / "new.duckdb", 8, memory_limit=wrong),
        lambda: prepare_embeddings(docs, tmp_path / "new.duckdb", memory_limit=wrong, **HASHING),
        lambda: compact(path, memory_limit=wrong),
        lambda: upgrade(path, memory_limit=wrong),
        lambda: reembed(path, "hashing-64", provider="hashing", memory_limit=wrong),
    ]
    for call in calls:
        with pytest.raises(InputError, match=r"memory_limit .*'(250MB|2GB)'"):
            call()
    assert {file.name for file in tmp_path.iterdir()} == before
    Store(path, read_only=False).close()  # nothing holds it


def test_results_do_not_depend_on_the_limit(path):
    with Store(path) as store:
        expected = store.hybrid_query("duck pond", query_vector=POND)
    with Store(path, memory_limit="64MB") as store:
        assert store.hybrid_query("duck pond", query_vector=POND) == expected


@pytest.mark.slow
def test_a_build_with_a_limit_gives_the_same_rows(tmp_path, monkeypatch):
    docs = write(tmp_path / "docs", **{f"p{i}_md": f"# Page {i}\n\nword{i} and some text" for i in range(50)})
    limits = []
    limit_memory = Database.limit_memory
    monkeypatch.setattr(Database, "limit_memory", lambda db, limit: limits.append(limit) or limit_memory(db, limit))
    results = []
    for name, limit in (("free", None), ("tight", "100MB")):
        built = prepare_embeddings(docs, tmp_path / f"{name}.duckdb", memory_limit=limit, **HASHING)
        with Store(built.path) as store:
            results.append(ids(store.hybrid_query("word7 page", top_k=20)))
    assert limits[0] == "150MB"
    assert "100MB" in limits
    assert results[0] == results[1]
    assert len(results[0]) == 20


def test_the_command_line_passes_the_limit_on(tmp_path, monkeypatch):
    docs = write(tmp_path / "docs", a_md="# One\n\ntext")
    limits = []
    monkeypatch.setattr(Database, "limit_memory", lambda _, limit: limits.append(limit))
    command = ["prepare-embeddings", str(docs), "-o", str(tmp_path / "kb.duckdb"), "--provider", "hashing"]
    command += ["--model", "hashing-64", "-q"]
    done = CliRunner().invoke(app, [*command, "--memory-limit", "1GB"])
    assert (done.exit_code, limits[0]) == (0, "1GB"), done.output
    done = CliRunner().invoke(app, [*command, "--overwrite", "--memory-limit", "much"])
    assert done.exit_code == 2
    assert "'2GB'" in done.output


@pytest.mark.rest
def test_a_rewrite_that_needs_more_leaves_the_file_as_it_was(path):
    with duckdb.connect(str(path)) as con:
        # Rows with a key are sorted, and a value is sorted as a whole: 80 MB never fit into 64, whatever is spilled.
        con.execute("CREATE TABLE mine (id INTEGER PRIMARY KEY, value VARCHAR)")
        con.execute("INSERT INTO mine VALUES (1, repeat('x', 80_000_000))")
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"ran out of the memory that memory_limit allows\. The file is as it was"):
        compact(path, memory_limit="64MB")
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["small.duckdb"]
    assert compact(path, memory_limit="1GB").bytes_after > 0


def test_work_that_needs_more_is_undone_and_told(path):
    def exhausting(store):
        with store._database.transaction() as con:
            con.execute("DELETE FROM documents")
            # One value of 160 MB: no spilling helps.
            con.execute("SELECT list(i) FROM range(20000000) AS t(i)").fetchall()

    with Store(path, read_only=False, memory_limit="64MB") as store:
        with pytest.raises(StoreError, match=r"memory_limit.*Nothing of this change was kept") as caught:
            exhausting(store)
        assert isinstance(caught.value.__cause__, duckdb.OutOfMemoryException)
        assert len(store.lexical_query("pond")) == 2


def test_a_search_that_needs_more_says_so(path, monkeypatch):
    def exhausted(*_, **__):
        raise duckdb.OutOfMemoryException("Out of Memory Error: could not allocate block")

    monkeypatch.setattr(legs, "vector_leg", exhausted)
    with Store(path) as store, pytest.raises(StoreError, match=r"memory_limit.*'1GB'") as caught:
        store.hybrid_query("duck", query_vector=POND)
    assert caught.value.path == str(path)


@pytest.mark.slow
def test_vectors_take_no_more_than_their_numbers(tmp_path):
    # ALPRD is what DuckDB would take for these; in long row groups it needs 6 bytes for a number of 4.
    vectors = np.random.default_rng(0).normal(size=(3000, 64)).astype(np.float32)
    path = tmp_path / "kb.duckdb"
    with Store.create(path, 64) as store:
        store.upsert([Document("a.md", "")], [Chunk("a.md", i, f"chunk {i}") for i in range(3000)], vectors)
    with Store(path, read_only=False) as store:
        store.upsert([Document("b.md", "")], [Chunk("b.md", i, f"chunk {i}") for i in range(3000)], vectors)
    with duckdb.connect(str(path), read_only=True) as con:
        found = con.execute(
            "SELECT DISTINCT compression FROM pragma_storage_info('documents') "
            "WHERE column_name = 'embedding' AND segment_type = 'FLOAT'"
        ).fetchall()
    assert found == [("Uncompressed",)]
