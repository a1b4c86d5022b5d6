"""A folder of Parquet files: read by others, back into a store as it was, and never a wrong one."""

from __future__ import annotations

import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from sqlrag import (
    FormatError,
    InputError,
    NotFoundError,
    Store,
    StoreExistsError,
    hybrid_query,
    verify_file,
)
from sqlrag.embedders import HashingEmbedder
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA
from sqlrag.formats.parquet import export_parquet, import_parquet, is_parquet, read_parquet, write_parquet
from tests.support.exchange_contents import chunk, contents_of, damages, dumped, hard_contents, source, stored
from tests.support.helpers import HASHING, build
from tests.support.stores import make_small_store

TEXTS = {
    "ducks_md": "# Ducks\n\nA duck swims in the pond. The duck eats bread.\n\n## Geese\n\nNo duck here: a goose.",
    "docs__well-known_md": "---\ndate: 2024-02-03\ntags: [red]\n---\n# Über Enten\n\nDie Ente — 鸭子 — 🦆 schwimmt.\n",
    "oven_txt": "The oven bakes bread. A pond is no oven.\n" * 40,
}
CHUNKS, SOURCES = "chunks/part-00000.parquet", "sources/part-00000.parquet"


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), options={"chunk_size": 40}, **TEXTS)


@pytest.fixture(scope="module")
def whole(kb, tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "kb"
    export_parquet(kb, path)
    return path


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "kb")


@pytest.mark.slow
def test_a_store_comes_back_as_it_was(kb, folder, tmp_path):
    report = import_parquet(folder, tmp_path / "again.duckdb")
    assert report.notices == []
    with duckdb.connect(tmp_path / "again.duckdb", read_only=True) as con:
        con.execute(f"ATTACH '{kb}' AS old (READ_ONLY)")
        assert stored(con) == stored(con, "old.")
    with Store(tmp_path / "again.duckdb") as store:
        assert store.check() == []


def test_the_small_store_comes_back_as_it_was(tmp_path):
    make_small_store(tmp_path / "old.duckdb")
    export_parquet(tmp_path / "old.duckdb", tmp_path / "small")
    import_parquet(tmp_path / "small", tmp_path / "new.duckdb")
    with duckdb.connect(tmp_path / "new.duckdb", read_only=True) as con:
        con.execute(f"ATTACH '{tmp_path}/old.duckdb' AS old (READ_ONLY)")
        assert stored(con) == stored(con, "old.")


@pytest.mark.slow
def test_case_I9_the_queries_of_an_imported_store_give_the_same(kb, folder, tmp_path):
    import_parquet(folder, tmp_path / "again.duckdb")
    for question in ("duck", "bread in the pond", "Ente", "oven", "goose"):
        old, new = hybrid_query(question, kb), hybrid_query(question, tmp_path / "again.duckdb")
        assert [(r["node_id"], r["score"], r["metadata"]) for r in old] == [
            (r["node_id"], r["score"], r["metadata"]) for r in new
        ]


def test_hard_texts_and_documents_without_chunks_are_carried(tmp_path):
    write_parquet(hard_contents(), tmp_path / "hard")
    with read_parquet(tmp_path / "hard") as contents:
        assert dumped(contents) == dumped(hard_contents())


@pytest.mark.slow
def test_many_batches_come_back_in_order(tmp_path):
    """More documents than are read at a time, some without chunks, and one with more chunks than are."""
    rng = np.random.default_rng(1)
    names = [f"d{i:04d}" for i in range(300)]
    counts = {name: 5000 if i == 140 else i % 3 for i, name in enumerate(names)}
    chunks = [chunk(name, i, f"{name} {i}") for name in names for i in range(counts[name])]
    contents = contents_of([source(name, "") for name in names], chunks, rng.normal(size=(len(chunks), 4)))
    wanted = dumped(contents)
    write_parquet(contents, tmp_path / "many")
    with read_parquet(tmp_path / "many") as found:
        assert dumped(found) == wanted


def test_no_documents_at_all(tmp_path):
    write_parquet(contents_of([], [], np.empty((0, 4))), tmp_path / "none")
    report = import_parquet(tmp_path / "none", tmp_path / "none.duckdb")
    assert (report.documents, report.chunks) == (0, 0)


def test_the_same_store_gives_the_same_bytes(kb, whole, tmp_path):
    export_parquet(kb, tmp_path / "again")
    files = sorted(file.relative_to(whole) for file in whole.rglob("*") if file.is_file())
    assert [str(file) for file in files] == ["README.md", CHUNKS, SOURCES, "sqlrag.json"]
    for file in files:
        assert (tmp_path / "again" / file).read_bytes() == (whole / file).read_bytes()


def test_whole_documents_are_chosen_by_filters(kb, tmp_path):
    assert export_parquet(kb, tmp_path / "red", tags_any=["red"]).documents == 1
    assert pq.read_table(tmp_path / "red" / "sources")["doc_id"].to_pylist() == ["docs/well-known.md"]


# Other readers.


def test_the_schema_is_what_the_handbook_says(whole):
    chunks, sources = (pq.read_schema(whole / name) for name in (CHUNKS, SOURCES))
    item = pa.field("element", pa.float32(), nullable=False)
    assert chunks.remove_metadata() == CHUNK_SCHEMA.append(pa.field("embedding", pa.list_(item, 64), nullable=False))
    assert sources.remove_metadata() == SOURCE_SCHEMA
    facts = json.loads(chunks.metadata[b"sqlrag"])
    assert facts["settings"]["embedding_model"] == HASHING["embed_model_name"]
    assert facts["settings"]["embedding_dimensions"] == "64"
    assert sources.metadata[b"sqlrag"] == chunks.metadata[b"sqlrag"]


def test_the_encodings_are_those_that_spark_reads(whole):
    """Spark 4.0.1 failed at BYTE_STREAM_SPLIT, "Unsupported encoding"."""
    for name in (CHUNKS, SOURCES):
        group = pq.read_metadata(whole / name).row_group(0)
        used = {one for place in range(group.num_columns) for one in group.column(place).encodings}
        assert used <= {"PLAIN", "RLE", "RLE_DICTIONARY"}


def test_duckdb_pandas_and_polars_read_it(kb, whole):
    with duckdb.connect() as con:
        rows = con.execute(
            "SELECT node_id, file_name, embedding FROM read_parquet($1) JOIN read_parquet($2) USING (doc_id)",
            [f"{whole}/chunks/*.parquet", f"{whole}/sources/*.parquet"],
        ).fetchall()
        con.execute(f"ATTACH '{kb}' AS kb (READ_ONLY)")
        wanted = con.execute(
            "SELECT node_id, file_name, embedding FROM kb.documents JOIN kb.source_documents USING (doc_id)"
        ).fetchall()
    assert sorted(rows) == sorted((node_id, name, list(vector)) for node_id, name, vector in wanted)
    names = sorted(row[0] for row in rows)
    assert sorted(pd.read_parquet(whole / "chunks")["node_id"]) == names
    frame = pl.read_parquet(whole / "chunks" / "*.parquet")
    assert sorted(frame["node_id"]) == names
    assert frame["embedding"].dtype == pl.Array(pl.Float32, 64)


def test_the_card_names_both_tables_for_hugging_face(whole):
    """datasets.load_dataset(folder, "chunks") reads its YAML block; without it both tables would be taken for one."""
    import yaml

    card = yaml.safe_load((whole / "README.md").read_text().split("---")[1])
    assert {c["config_name"]: sorted(map(str, whole.glob(c["data_files"]))) for c in card["configs"]} == {
        "chunks": [str(whole / CHUNKS)], "sources": [str(whole / SOURCES)]
    }  # fmt: skip


# Outputs.


@pytest.mark.slow
def test_what_is_there_is_not_replaced_by_chance(kb, folder, tmp_path):
    with pytest.raises(StoreExistsError):
        export_parquet(kb, folder)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"mine")
    (tmp_path / "file").write_text("mine")
    for taken in ("photos", "file"):
        with pytest.raises(FormatError, match="is not replaced"):
            export_parquet(kb, tmp_path / taken, overwrite=True)
    assert export_parquet(kb, tmp_path / "made" / "kb").documents  # the folder is made
    report = export_parquet(kb, folder, overwrite=True, tags_any=["red"])
    assert report.documents == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "kb", "made", "photos"]
    assert is_parquet(folder)
    assert not is_parquet(tmp_path / "photos")
    assert not is_parquet(tmp_path / "file")


def test_case_I10_a_failed_export_leaves_what_was_there(folder, tmp_path):
    before = {file: file.read_bytes() for file in folder.rglob("*.*") if file.is_file()}
    bad = contents_of([source("a", "b")], [chunk("a", 0, " ")], [[1.0, 0.0]])
    with pytest.raises(FormatError, match="blank"):
        write_parquet(bad, folder, overwrite=True)
    assert {file: file.read_bytes() for file in folder.rglob("*.*") if file.is_file()} == before
    assert [path.name for path in tmp_path.iterdir()] == ["kb"]


# Bad input.


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    path = tmp_path_factory.mktemp("target") / "small.duckdb"
    make_small_store(path)
    return path


@pytest.fixture
def refuses(folder, tmp_path, target):
    """Return a check that the folder is refused, and the store that it was to replace is as it was."""

    def check(message):
        path = tmp_path / "target.duckdb"
        shutil.copy(target, path)
        with pytest.raises(FormatError, match=message):
            import_parquet(folder, path, overwrite=True)
        assert path.read_bytes() == target.read_bytes()
        assert not list(tmp_path.glob(".*"))

    return check


def test_changed_files_are_refused(folder, refuses):
    path = folder / CHUNKS
    data = path.read_bytes()
    for changed in (data[:-1], data[: len(data) // 2], b"", data[:99] + b"\xff" + data[100:], data + b"\0"):
        path.write_bytes(changed)
        refuses("is not the file that was exported")


def test_swapped_files_are_refused(kb, folder, tmp_path, refuses):
    export_parquet(kb, tmp_path / "red", tags_any=["red"])
    shutil.copy(tmp_path / "red" / SOURCES, folder / SOURCES)
    refuses("is not the file that was exported")


def test_missing_and_added_files_are_refused(folder, tmp_path, refuses):
    shutil.copy(folder / CHUNKS, folder / "chunks" / "part-00001.parquet")
    refuses("part-00001.parquet")
    shutil.rmtree(folder / "chunks")
    refuses("no Parquet file in its folder chunks/")
    with pytest.raises(NotFoundError):
        import_parquet(tmp_path / "nothing", tmp_path / "new.duckdb")


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        ("", "is not JSON"),
        ('{"layout": NaN}', "NaN is not JSON"),
        ('{"layout": 1, "layout": 1}', "twice"),
        ("[]", "incomplete"),
        ('{"layout": 2, "documents": 1, "chunks": 1, "sha256": {}}', "layout 2"),
        ('{"layout": 1, "documents": 1, "chunks": 1, "sha256": {"../x": "0"}}', "and the folder have different files"),
        ('{"layout": 1, "documents": 1, "chunks": 1, "sha256": 7}', "incomplete"),
        (" " * (1 << 20) + "{}", "too long"),
    ],
)
def test_a_manifest_that_was_changed_is_refused(folder, refuses, manifest, message):
    (folder / "sqlrag.json").write_text(manifest)
    refuses(message)


def test_wrong_counts_are_refused(folder, refuses):
    manifest = json.loads((folder / "sqlrag.json").read_text())
    (folder / "sqlrag.json").write_text(json.dumps({**manifest, "chunks": 3}))
    refuses("has other counts than the files")


def edit(folder, name, change):
    """Change a table as another program would, and forget the digests."""
    (folder / "sqlrag.json").unlink(missing_ok=True)
    pq.write_table(change(pq.read_table(folder / name)), folder / name)


BAD_SETTINGS = '{"layout": 1, "updated_at": "", "settings": {"fingerprint": "x"}}'


def vectors_of(kind, value):
    return lambda table: with_column(table, "embedding", [value(i) for i in range(len(table))], kind)


def with_column(table, name, values, kind=None):
    place = table.schema.get_field_index(name)
    kind = kind or table.schema.field(name).type
    return table.set_column(place, pa.field(name, kind), pa.array(values, kind))


def first_value(name, value):
    return lambda table: with_column(table, name, [value, *table[name].to_pylist()[1:]])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (CHUNKS, lambda t: pa.concat_tables([t, t]), "must be in the order|not in the file"),
        (CHUNKS, lambda t: t.take(list(range(len(t)))[::-1]), "must be in the order|not in the file"),
        (CHUNKS, lambda t: t.drop_columns("page"), "no column page"),
        (CHUNKS, lambda t: t.drop_columns("embedding"), "no column embedding"),
        (CHUNKS, first_value("text", None), "no value in text"),
        (CHUNKS, first_value("text", " "), "blank"),
        (CHUNKS, first_value("text", "other"), "is not the slice"),
        (CHUNKS, first_value("doc_id", None), "no doc_id"),
        (CHUNKS, first_value("doc_id", "aa.md"), "must be named|not in the file"),
        (CHUNKS, first_value("node_id", "x"), "must be named"),
        (CHUNKS, first_value("collection", "other"), "collection"),
        (CHUNKS, first_value("chunk_index", -1), "in the order"),
        (CHUNKS, first_value("metadata_", "{nope"), "is not JSON"),
        (CHUNKS, first_value("metadata_", '{"a":NaN}'), "NaN is not JSON"),
        (CHUNKS, first_value("metadata_", "[1]"), "is not a JSON object"),
        (CHUNKS, first_value("tags", [None]), "no value in tags"),
        (CHUNKS, first_value("embedding", [np.nan] * 64), "not finite"),
        (CHUNKS, first_value("embedding", [0.0] * 64), "zero"),
        (CHUNKS, vectors_of(pa.list_(pa.float32(), 63), lambda i: [1.0] * 63), "64 dimensions"),
        (CHUNKS, vectors_of(pa.list_(pa.float64()), lambda i: [1.0] * (63 + i % 2)), "cannot be read"),
        (CHUNKS, vectors_of(pa.string(), lambda i: "x"), "embedding|cannot be read"),
        (CHUNKS, lambda t: with_column(t, "page", ["x"] * len(t), pa.string()), "cannot be read"),
        (CHUNKS, lambda t: t.replace_schema_metadata({"sqlrag": "{"}), "is not JSON"),
        (CHUNKS, lambda t: t.replace_schema_metadata({"sqlrag": "{}"}), "cannot be used"),
        (CHUNKS, lambda t: t.replace_schema_metadata({"sqlrag": BAD_SETTINGS}), "settings"),
        (SOURCES, lambda t: t.slice(1), "not in the file|is not in"),
        (SOURCES, lambda t: t.slice(0, len(t) - 1), "is not in"),
        (SOURCES, lambda t: pa.concat_tables([t, t.slice(len(t) - 1)]), "more than once"),
        (SOURCES, lambda t: t.take(list(range(len(t)))[::-1]), "in the order of doc_id"),
        (SOURCES, first_value("text", None), "no value in text"),
        (SOURCES, first_value("metadata_", '{"a":1,"a":2}'), "twice"),
        (SOURCES, first_value("metadata_", "1" * 5000), "is not usable JSON"),
    ],
)  # fmt: skip
def test_edited_tables_that_no_store_could_hold_are_refused(folder, refuses, name, change, message):
    edit(folder, name, change)
    refuses(message)


def test_tables_of_another_program_are_imported(kb, whole, tmp_path):
    """DuckDB writes them anew: plain lists, no metadata, no digests."""
    with duckdb.connect() as con:
        for name in ("chunks", "sources"):
            (tmp_path / "other" / name).mkdir(parents=True)
            con.execute(f"COPY (FROM '{whole}/{name}/*.parquet') TO '{tmp_path}/other/{name}/x.parquet'")
    report = import_parquet(tmp_path / "other", tmp_path / "again.duckdb", embedder=HashingEmbedder("hashing-64"))
    assert "has no sqlrag.json" in str(report)
    with duckdb.connect(tmp_path / "again.duckdb", read_only=True) as con:
        con.execute(f"ATTACH '{kb}' AS old (READ_ONLY)")
        assert stored(con)[0] == stored(con, "old.")[0]
    assert hybrid_query("duck", tmp_path / "again.duckdb")[0]["doc_id"] == "ducks.md"


@pytest.mark.parametrize("data", [b"", b"PAR1", b"PAR1" * 100, b"\x80\x04cos\nsystem\n.", b"SQLite format 3\0" * 99])
def test_case_L2_foreign_files_are_refused(folder, refuses, data):
    (folder / "sqlrag.json").unlink()
    for name in (CHUNKS, SOURCES):
        kept = (folder / name).read_bytes()
        (folder / name).write_bytes(data)
        refuses("cannot be read")
        (folder / name).write_bytes(kept)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz") / "hard"
    write_parquet(hard_contents(), folder)
    files = {name: (folder / name).read_bytes() for name in (CHUNKS, SOURCES, "sqlrag.json")}
    return folder, files, dumped(hard_contents())


@pytest.mark.slow
@settings(max_examples=300, deadline=None, database=None)
@given(damage=damages())
def test_no_damage_gives_other_contents(fuzzed, damage):
    check_damaged(*fuzzed, damage)


def check_damaged(folder, files, wanted, damage):
    """Assert that a folder with a damaged file is refused, or means what the whole one does."""
    for name, data in files.items():
        (folder / name).write_bytes(damage(data))
        try:
            with read_parquet(folder) as contents:
                found = dumped(contents)
        except FormatError:
            pass
        else:
            assert found == wanted
        (folder / name).write_bytes(data)


@pytest.mark.slow
@settings(max_examples=150, deadline=None, database=None)
@given(damage=damages())
def test_no_damage_without_digests_is_a_crash(fuzzed, damage):
    check_undigested(*fuzzed[:2], damage)


def check_undigested(folder, files, damage):
    """Assert that a folder without digests is read or refused, and nothing else."""
    manifest = folder / "sqlrag.json"
    manifest.unlink()
    try:
        for name in (CHUNKS, SOURCES):
            (folder / name).write_bytes(damage(files[name]))
            with suppress(FormatError), read_parquet(folder) as contents:
                dumped(contents)
            (folder / name).write_bytes(files[name])
    finally:
        for name, data in files.items():
            (folder / name).write_bytes(data)


def test_a_folder_that_was_moved_away_by_a_killed_process_comes_back(tmp_path):
    store = build(tmp_path, a_md="alpha")
    path = export_parquet(store, tmp_path / "kb.parquet").path
    path.rename(tmp_path / ".kb.parquet.1-0000.building.old")  # where a kill between the two renames leaves it
    with pytest.raises(InputError):
        export_parquet(store, path, collection=5, overwrite=True)
    with pytest.raises(StoreExistsError):
        export_parquet(store, path)
    assert verify_file(path).documents == 1
    assert [file.name for file in tmp_path.glob(".*")] == []


@pytest.mark.slow
@pytest.mark.parametrize("exchanges", [True, False])
def test_a_folder_is_replaced_as_a_whole(tmp_path, monkeypatch, exchanges):
    store = build(tmp_path, a_md="alpha")
    path = export_parquet(store, tmp_path / "kb.parquet").path
    seen = []
    if exchanges:
        if sys.platform == "win32":
            pytest.skip("two names cannot be exchanged in one step there")
        monkeypatch.setattr(Path, "rename", lambda self, target: seen.append((self, target)))
    else:
        monkeypatch.setattr("sqlrag.formats.targets._exchanged", lambda one, other: False)
    more = build(tmp_path, "more.duckdb", a_md="alpha", b_md="beta")
    export_parquet(more, path, overwrite=True)
    assert verify_file(path).documents == 2
    assert seen == []
    assert [file.name for file in tmp_path.glob(".*")] == []
