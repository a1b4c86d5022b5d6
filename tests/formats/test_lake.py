"""A corpus in a lake: a folder for each collection, and files in object stores."""

from __future__ import annotations

import shutil
import subprocess
import sys

import duckdb
import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest

import sqlrag
from sqlrag import Chunk, Document, InputError, Store
from sqlrag.formats.parquet import export_parquet, import_parquet
from tests.support.exchange_contents import stored


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    """Documents of three collections, whose order is not that of the collections; one has no chunks."""
    path = tmp_path_factory.mktemp("lake") / "kb.duckdb"
    names = {"a.md": "2024", "b.md": "guides/éé", "c.md": "2024", "d.md": "empty"}
    documents = [Document(name, "x", collection=of) for name, of in names.items()]
    cut = {name: of for name, of in names.items() if of != "empty"}
    chunks = [Chunk(name, place, "x", collection=of) for name, of in cut.items() for place in range(3)]
    with Store.create(path, 8) as store:
        store.upsert(documents, chunks, np.eye(9, 8) + 0.1)
    return path


@pytest.fixture(scope="module")
def lake(kb, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lake") / "kb"
    export_parquet(kb, folder, by_collection=True)
    return folder


@pytest.mark.slow
def test_each_collection_has_a_folder_and_comes_back(kb, lake, tmp_path):
    parts = [f"collection={name}" for name in ("2024", "empty", "guides%2Féé")]
    for table in ("chunks", "sources"):
        assert sorted(path.name for path in (lake / table).iterdir()) == parts
    report = import_parquet(lake, tmp_path / "again.duckdb")
    assert (report.documents, report.chunks) == (4, 9)
    with duckdb.connect(tmp_path / "again.duckdb", read_only=True) as con:
        con.execute(f"ATTACH '{kb}' AS old (READ_ONLY)")
        assert stored(con) == stored(con, "old.")


@pytest.mark.slow
@pytest.mark.parametrize("names", [["x.parquet"], [".", "..", "a.parquet/b", "part-00000.parquet", "x.parquet"]])
def test_a_collection_may_be_named_like_a_file_or_folder(tmp_path, names):
    documents = [Document(f"d{place}", "x", collection=name) for place, name in enumerate(names)]
    chunks = [Chunk(one.doc_id, 0, "x", collection=one.collection) for one in documents]
    with Store.create(tmp_path / "kb.duckdb", 8) as store:
        store.upsert(documents, chunks, np.eye(len(names), 8) + 0.1)
    export_parquet(tmp_path / "kb.duckdb", tmp_path / "kb", by_collection=True)
    assert not any(part.name.endswith(".") for part in (tmp_path / "kb" / "chunks").iterdir())  # Windows drops it
    import_parquet(tmp_path / "kb", tmp_path / "again.duckdb")
    with duckdb.connect(tmp_path / "again.duckdb", read_only=True) as con:
        con.execute(f"ATTACH '{tmp_path}/kb.duckdb' AS old (READ_ONLY)")
        assert stored(con) == stored(con, "old.")
    with duckdb.connect() as con:
        every = con.sql(f"FROM read_parquet('{tmp_path}/kb/chunks/*/*.parquet', hive_partitioning = true)")
        assert sorted(every.project("collection").fetchall()) == sorted((name,) for name in names)


@pytest.mark.slow
def test_more_collections_than_files_may_be_open(tmp_path):
    """Each has two documents, which are of different batches in the order of doc_id."""
    pytest.importorskip("resource", reason="Windows has no such limit")
    code = """
import resource, numpy as np
from sqlrag import Chunk, Document, Store
from sqlrag.formats.parquet import export_parquet, import_parquet
of = {f"d{i:04d}": f"c{i % 300:04d}" for i in range(600)}
documents = [Document(name, "x", collection=collection) for name, collection in of.items()]
chunks = [Chunk(name, place, "x", collection=collection) for name, collection in of.items() for place in range(8)]
with Store.create("kb.duckdb", 2) as store:
    store.upsert(documents, chunks, np.ones((4800, 2)))
resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
print(export_parquet("kb.duckdb", "kb", by_collection=True).chunks, import_parquet("kb", "again.duckdb").chunks)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("4800 4800\n", 0), done.stderr
    for place in range(300):
        file = tmp_path / "kb" / "chunks" / f"collection=c{place:04d}" / "part-00000.parquet"
        nodes = [f"d{document:04d}#{chunk}" for document in (place, place + 300) for chunk in range(8)]
        assert pq.read_table(file, partitioning=None)["node_id"].to_pylist() == nodes


def test_a_changed_or_missing_part_is_refused(lake, tmp_path):
    shutil.copytree(lake, tmp_path / "cut")
    (tmp_path / "cut" / "chunks" / "collection=2024" / "part-00000.parquet").unlink()
    with pytest.raises(sqlrag.FormatError, match="different files: chunks/collection=2024/part"):
        import_parquet(tmp_path / "cut", tmp_path / "cut.duckdb")


def test_a_store_without_documents_has_no_collections(tmp_path):
    Store.create(tmp_path / "none.duckdb", 8).close()
    export_parquet(tmp_path / "none.duckdb", tmp_path / "none", by_collection=True)
    assert import_parquet(tmp_path / "none", tmp_path / "again.duckdb").documents == 0


def test_duckdb_and_polars_read_the_folder_of_one_collection_alone(lake, tmp_path):
    lake = shutil.copytree(lake, tmp_path / "lake")
    everything = f"{lake}/chunks/**/*.parquet"
    with duckdb.connect() as con:
        found = con.execute(
            "SELECT node_id FROM read_parquet($1, hive_partitioning = true, hive_types = {'collection': VARCHAR}) "
            "WHERE collection = 'guides/éé' ORDER BY node_id",
            [everything],
        ).fetchall()
    assert found == [("b.md#0",), ("b.md#1",), ("b.md#2",)]
    (other,) = (lake / "chunks").glob("collection=guides*/*")
    other.write_bytes(b"is not read")
    with duckdb.connect() as con:
        count = "SELECT count(*) FROM read_parquet($1, hive_types = {'collection': VARCHAR}) WHERE collection = '2024'"
        assert con.execute(count, [everything]).fetchall() == [(6,)]
    frame = pl.scan_parquet(everything, hive_partitioning=True, hive_schema={"collection": pl.String})
    assert frame.filter(pl.col("collection") == "2024").select("node_id").collect()["node_id"].to_list() == [
        f"{name}#{place}" for name in ("a.md", "c.md") for place in range(3)
    ]


@pytest.mark.parametrize("url", ["s3://bucket/kb.duckdb", "https://me:hush@h/kb.duckdb?sig=hush", "gs://b/kb.duckdb"])
def test_a_file_in_an_object_store_is_only_searched(url, tmp_path):
    (tmp_path / "a.md").write_text("# a")
    for ask in (
        lambda: Store(url, read_only=False),
        lambda: sqlrag.Stores([url]),
        lambda: sqlrag.check(url),
        lambda: sqlrag.repair(url),
        lambda: sqlrag.compact(url),
        lambda: sqlrag.reembed(url, "hashing-64"),
        lambda: sqlrag.update_embeddings(tmp_path, url),
        lambda: sqlrag.connect(url),
        lambda: sqlrag.delete_documents(url, doc_ids=["a"]),
        lambda: sqlrag.prepare_embeddings(tmp_path, url),
        lambda: export_parquet(url, tmp_path / "out"),
    ):
        with pytest.raises(InputError, match=r"object store.*Copy it here.*httpfs.*A corpus in a lake") as raised:
            ask()
        assert "hush" not in str(raised.value)
