"""What a push does with documents that Postgres cannot store, that have moved, and with files that hold nothing."""

from __future__ import annotations

import json

import numpy as np
import pytest

from sqlrag import Chunk, Document, InputError, PostgresStore, Store, push
from sqlrag.cli import main
from sqlrag.formats.push import to_postgres

LONG = "".join(map(chr, np.random.default_rng(7).integers(0x4E00, 0x9FFF, 3_000)))  # 9 kB that do not compress


def write(path, documents, size=8):
    """Write documents (doc_id: collection, text, tags) into a file, each with a chunk."""
    rows = [Document(name, text, collection, tags=tags) for name, (collection, text, tags) in documents.items()]
    chunks = [Chunk(row.doc_id, 0, row.text, row.tags, collection=row.collection) for row in rows]
    make = Store(path, read_only=False) if path.exists() else Store.create(path, size)
    with make as store:
        store.upsert(rows, chunks, np.eye(size, dtype=np.float32)[np.arange(len(rows)) % size])
    return path


def plain(*names, collection="default", text="valve"):
    return {name: (collection, f"{text} {name}", ()) for name in names}


def put_nul(path, table, column, doc_id, value):
    """Give a document of a file the character, which no reader would leave in."""
    with Store(path, read_only=False) as store:
        store.cursor().execute(f"UPDATE {table} SET {column} = {value} WHERE doc_id = ?", [doc_id])


GOOD = [f"d{number:02}" for number in range(60)]


@pytest.fixture
def kb(tmp_path):
    return write(tmp_path / "kb.duckdb", plain(*GOOD[:30], "mmm", *GOOD[30:]))


def assert_whole(url, path, left_out):
    """Everything but these documents is there, verified and searchable."""
    with PostgresStore(url) as server, Store(path) as file:
        assert server.check() == []
        wanted = {chunk.node_id for chunk in file.chunks() if chunk.doc_id not in left_out}
        assert {row["node_id"] for row in server.lexical_query("valve", top_k=99)} == wanted
        assert {row["node_id"] for row in server.vector_query(query_vector=np.ones(8), top_k=99)} == wanted


@pytest.mark.parametrize(
    ("table", "column", "value", "named"),
    [
        ("source_documents", "text", "text || chr(0)", "text"),
        ("source_documents", "tags", "['a', 'b' || chr(0)]", "tags"),
        ("source_documents", "file_path", "chr(0)", "file_path"),
        ("documents", "heading_path", "['a' || chr(0)]", "heading_path"),
        ("documents", "metadata_", r"""'{"k": ["\\\u0000"]}'""", "metadata"),
    ],
)
@pytest.mark.parametrize("batch_chunks", [None, 10])
def test_a_document_with_nul_is_named_and_the_others_are_stored(
    kb, postgres_url, table, column, value, named, batch_chunks
):
    put_nul(kb, table, column, "mmm", value)
    for documents in (60, 0):
        done = push(kb, postgres_url, progress="off", batch_chunks=batch_chunks)
        assert (done.documents, done.skipped, done.failed, done.verified) == (documents, 60 - documents, 1, True)
        ((doc_id, status, reason),) = done.failures
        assert (doc_id, status) == ("mmm", "failed")
        assert reason == f"its {named} has the character NUL (U+0000), which Postgres cannot store."
    assert_whole(postgres_url, kb, {"mmm"})


def test_an_escaped_backslash_is_no_nul(kb, postgres_url):
    put_nul(kb, "documents", "metadata_", "mmm", r"""'{"k": "\\u0000"}'""")
    assert push(kb, postgres_url, progress="off").failures == []


def test_ids_with_nul(kb, postgres_url, tmp_path):
    for table in ("documents", "source_documents"):
        put_nul(kb, table, "doc_id", "mmm", "'m' || chr(0)")
    push(write(tmp_path / "other.duckdb", plain("gone")), postgres_url, progress="off")
    done = push(kb, postgres_url, progress="off", prune=True)
    assert (done.documents, done.removed, [one.doc_id for one in done.failures]) == (60, 1, ["m\0"])
    assert "its doc_id has" in done.failures[0].reason
    assert_whole(postgres_url, kb, {"m\0"})


@pytest.mark.parametrize("batch_chunks", [None, 10])
def test_what_is_too_long_for_an_index_is_named_and_the_others_are_stored(tmp_path, postgres_url, batch_chunks):
    bad = {f"z{LONG}": ("default", "valve", ()), "d17b": ("default", "valve", (LONG,)), "d41b": (LONG, "valve", ())}
    kb = write(tmp_path / "kb.duckdb", {**plain(*GOOD), **bad, "e" * 9_000: ("default", "valve", ())})
    for documents in (61, 0):
        done = push(kb, postgres_url, progress="off", batch_chunks=batch_chunks)
        assert (done.documents, done.skipped, done.verified) == (documents, 61 - documents, True)
        assert [one.doc_id for one in done.failures] == sorted(bad)
        for one in done.failures:
            assert one.reason.startswith("Postgres refuses it: index row ")
            assert one.reason.endswith("Shorten its ids, tags or collection.")
    assert_whole(postgres_url, kb, set(bad))  # what is long and can be compressed is stored


def test_documents_with_long_keys_are_written_apart(tmp_path, postgres_url, monkeypatch):
    bad = {f"d{number}x": ("default", "valve", (LONG,)) for number in range(10, 50, 8)}
    kb = write(tmp_path / "kb.duckdb", plain(*GOOD) | bad)
    tries = []
    once = to_postgres.PostgresTarget._write
    monkeypatch.setattr(
        to_postgres.PostgresTarget,
        "_write",
        lambda self, batch: (tries.append(len(batch.sources)), once(self, batch))[1],
    )
    assert [one.doc_id for one in push(kb, postgres_url, progress="off").failures] == sorted(bad)
    assert (tries[0], max(tries[1:])) == (60, 5)


def test_another_refusal_of_the_server_is_named(kb, postgres, postgres_url):
    push(kb, postgres_url, progress="off")
    schema = postgres_url.rpartition("=")[2]
    postgres.execute(f"ALTER TABLE {schema}.chunks ADD CHECK (content NOT LIKE '%secret%')")
    write(kb, plain(*GOOD[:20], text="new valve") | plain("d33", text="secret valve"))
    done = push(kb, postgres_url, progress="off", prune=True)
    assert (done.documents, done.skipped, done.removed, done.verified) == (20, 40, 0, True)
    ((doc_id, _, reason),) = done.failures
    assert (doc_id, "violates check constraint" in reason) == ("d33", True)
    assert reason.endswith("Its earlier version stays there.")
    with PostgresStore(postgres_url) as server:
        assert server.sources(["d33"])["d33"]["text"] == "valve d33"
        assert server.check() == []


def test_what_is_no_fault_of_a_document_ends_the_push(kb, postgres, postgres_url, monkeypatch):
    push(kb, postgres_url, progress="off")
    schema = postgres_url.rpartition("=")[2]
    postgres.execute(f"ALTER TABLE {schema}.chunks RENAME COLUMN page TO pages")
    write(kb, plain(*GOOD, text="new"))
    tries = []
    once = to_postgres.PostgresTarget._write
    monkeypatch.setattr(to_postgres.PostgresTarget, "_write", lambda *given: (tries.append(1), once(*given))[1])
    with pytest.raises(Exception, match="page"):
        push(kb, postgres_url, progress="off")
    assert tries == [1]


def test_the_command_names_it_and_ends_with_1(kb, postgres_url, capsys, monkeypatch):
    put_nul(kb, "source_documents", "text", "mmm", "text || chr(0)")

    def run(*more):
        monkeypatch.setattr("sys.argv", ["sqlrag", "push", str(kb), postgres_url, *more])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    code, out, err = run()
    assert code == 1
    assert "60 documents, 60 chunks" in out
    assert "; 1 failed, verified" in out
    assert "failed: mmm: its text has the character NUL" in err
    code, out, _ = run("--format", "json")
    facts = json.loads(out)
    assert (code, facts["failed"], facts["skipped"]) == (1, 1, 60)
    assert [(one["doc_id"], one["status"]) for one in facts["failures"]] == [("mmm", "failed")]


class TestMoved:
    @pytest.fixture
    def moved(self, tmp_path, postgres_url):
        """Return a file that was pushed, of which a document has since moved from red to blue."""
        push(write(tmp_path / "old.duckdb", plain("a", "b", collection="red")), postgres_url, progress="off")
        return write(tmp_path / "new.duckdb", plain("a", collection="blue") | plain("b", collection="red"))

    @pytest.mark.parametrize("options", [{"prune": True}, {"prune": True, "collection": ["red", "blue"]}])
    def test_it_is_replaced(self, moved, postgres_url, options):
        done = push(moved, postgres_url, progress="off", **options)
        assert (done.documents, done.skipped, done.removed, done.failures) == (1, 1, 0, [])
        assert done.notices == ["Moved from another collection: 1 document, such as 'a', which was in 'red'."]
        with PostgresStore(postgres_url) as server:
            assert [(chunk.doc_id, chunk.collection) for chunk in server.chunks()] == [("a", "blue"), ("b", "red")]
            assert [row["doc_id"] for row in server.lexical_query("valve", collection="red")] == ["b"]
            assert server.check() == []
        assert push(moved, postgres_url, progress="off").notices == []

    def test_one_that_cannot_be_stored_stays_where_it_was(self, moved, postgres_url):
        write(moved, {"c": ("red", "valve c", (LONG,))})
        push(moved, postgres_url, prune=True, progress="off")
        write(moved.with_name("last.duckdb"), {"a": ("green", "valve a", (LONG,)), **plain("b", collection="red")})
        done = push(moved.with_name("last.duckdb"), postgres_url, prune=True, progress="off")
        assert (done.notices, [one.doc_id for one in done.failures], done.skipped) == ([], ["a"], 1)
        with PostgresStore(postgres_url) as server:
            assert [(chunk.doc_id, chunk.collection) for chunk in server.chunks()] == [("a", "blue"), ("b", "red")]

    @pytest.mark.parametrize(
        "options", [{}, {"collection": "blue"}, {"collection": "blue", "prune": True}, {"collection": ["red", "blue"]}]
    )
    def test_it_may_be_that_of_another_file(self, moved, postgres_url, options):
        with pytest.raises(
            InputError, match=r"'a' is in collection 'blue' of the file, and in 'red' .* both collections"
        ):
            push(moved, postgres_url, progress="off", **options)
        with PostgresStore(postgres_url) as server:
            assert [chunk.collection for chunk in server.chunks()] == ["red", "red"]

    def test_a_collection_that_is_left_by_all_goes(self, moved, postgres, postgres_url, tmp_path):
        push(
            write(tmp_path / "third.duckdb", plain("a", "b", collection="blue")),
            postgres_url,
            prune=True,
            progress="off",
        )
        schema = postgres_url.rpartition("=")[2]
        assert postgres.execute(f"SELECT collection FROM {schema}.collections") == [("blue",)]


@pytest.mark.parametrize("collection", [None, "nope"])
def test_prune_by_a_file_without_documents_removes_nothing(kb, postgres_url, tmp_path, collection):
    push(kb, postgres_url, progress="off")
    Store.create(tmp_path / "empty.duckdb", 8).close()
    with pytest.raises(InputError, match=r"so nothing was removed\. Check that it is the right file"):
        push(tmp_path / "empty.duckdb", postgres_url, collection=collection, prune=True, progress="off")
    assert push(tmp_path / "empty.duckdb", postgres_url, progress="off").removed == 0
    assert_whole(postgres_url, kb, set())
