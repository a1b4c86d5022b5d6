"""Damaged files and failing disks: every public function raises an error of sqlrag, with a remedy that is true."""

from __future__ import annotations

import builtins
import errno
import inspect
import io
import os
import random
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag import Chunk, Document, Store, Stores
from sqlrag.answers.chat_models import Piece
from sqlrag.cli import app
from sqlrag.engines.duckdb.failures import failure, reported
from sqlrag.errors import NotAStoreError, SqlragError, StoreError
from tests.support.helpers import HASHING, ROOT, build, python, write

BLOCK = 262_144  # bytes of a block of DuckDB
HEAD = 12_288  # bytes before the first
VECTOR = np.ones(64, np.float32) / 8
EMBEDDER = sqlrag.load_embedder("hashing-64", provider="hashing")


class Chat:
    """A chat model that needs no server."""

    model_name = "none"

    def __call__(self, messages):
        yield Piece("one [1]")


def _registered(kb):
    with duckdb.connect() as con:
        sqlrag.register(con, kb)


def _asked(question="common"):
    return [{"query": question, "relevant": ["a.md"]}]


# Every public function and method that reads or writes files. Each works in a folder with the file kb.duckdb, its pages
# in docs, rows in rows.csv, another file, other.duckdb, and an export of it in each format.
CALLS = {
    "add_documents": lambda f, kb: sqlrag.add_documents({"n.md": b"# N\n\nnew word\n"}, kb),
    "answer": lambda f, kb: sqlrag.answer("common", kb, chat_model=Chat()),
    "attach_sql": lambda f, kb: sqlrag.attach_sql(kb),
    "backup": lambda f, kb: sqlrag.backup(kb, f / "o.duckdb"),
    "build_over": lambda f, kb: sqlrag.prepare_embeddings(f / "docs", kb, overwrite=True, **HASHING),
    "check": lambda f, kb: sqlrag.check(kb),
    "classify": lambda f, kb: sqlrag.classify(kb, ["common", "another"]),
    "cluster": lambda f, kb: sqlrag.cluster(kb),
    "compact": lambda f, kb: sqlrag.compact(kb),
    "compress": lambda f, kb: sqlrag.compress("common", sqlrag.lexical_query("common", kb), store=kb),
    "connect": lambda f, kb: sqlrag.connect(kb).close(),
    "convert": lambda f, kb: sqlrag.convert(kb, f / "o.ragmd"),
    "corpus_map": lambda f, kb: sqlrag.corpus_map(kb),
    "delete_documents": lambda f, kb: sqlrag.delete_documents(kb, doc_ids=["a.md"]),
    "distinctive_terms": lambda f, kb: sqlrag.distinctive_terms(kb, {"metadata": {"$doc_id": "a.md"}}),
    "embed_rows": lambda f, kb: sqlrag.embed_rows(kb),
    "evaluate": lambda f, kb: sqlrag.evaluate(_asked(), kb),
    "explain": lambda f, kb: sqlrag.explain("common", "a.md#0", kb),
    "recommend": lambda f, kb: sqlrag.recommend(
        [*_asked(), *_asked("word")], kb, ["lexical", "rrf"], stemmers=["english"], chunk_sizes=[20]
    ),
    "export_faiss_json": lambda f, kb: sqlrag.export_faiss_json(kb, f / "vectors-o.faiss"),
    "export_map_html": lambda f, kb: sqlrag.export_map_html(kb, f / "o.html"),
    "export_map_parquet": lambda f, kb: sqlrag.export_map_parquet(kb, f / "o.map"),
    "export_parquet": lambda f, kb: sqlrag.export_parquet(kb, f / "o.parquet"),
    "export_ragfile": lambda f, kb: sqlrag.export_ragfile(kb, f / "o.rag"),
    "export_ragmd": lambda f, kb: sqlrag.export_ragmd(kb, f / "o.ragmd"),
    "file_facts": lambda f, kb: sqlrag.file_facts(kb),
    "get_embedding_metadata": lambda f, kb: sqlrag.get_embedding_metadata(kb),
    "get_source_documents": lambda f, kb: sqlrag.get_source_documents(["a.md#0"], kb),
    "highlight": lambda f, kb: sqlrag.highlight("common", ["a common word"], kb),
    "hybrid_query": lambda f, kb: sqlrag.hybrid_query("common", kb),
    "import_faiss_json": lambda f, kb: sqlrag.import_faiss_json(f / "vectors-x.faiss", kb),
    "import_parquet": lambda f, kb: sqlrag.import_parquet(f / "x.parquet", kb),
    "import_ragfile": lambda f, kb: sqlrag.import_ragfile(f / "x.rag", kb),
    "import_ragmd": lambda f, kb: sqlrag.import_ragmd(f / "x.ragmd", kb),
    "index": lambda f, kb: sqlrag.index([Chunk("n", 0, "new word")], kb, vectors=[VECTOR]),
    "index_rows": lambda f, kb: sqlrag.index_rows(f / "rows.csv", kb, key="id", text="body", progress="off"),
    "lexical_query": lambda f, kb: sqlrag.lexical_query("common", kb),
    "merge": lambda f, kb: sqlrag.merge([kb, f / "other.duckdb"], f / "o.duckdb"),
    "near_duplicates": lambda f, kb: sqlrag.near_duplicates(kb),
    "open_store": lambda f, kb: sqlrag.open_store(kb).__enter__().close(),
    "plot_lengths": lambda f, kb: sqlrag.plot_lengths(kb),
    "plot_map": lambda f, kb: sqlrag.plot_map(kb),
    "prepare_embeddings": lambda f, kb: sqlrag.prepare_embeddings(f / "docs", f / "o.duckdb", **HASHING),
    "rag_service": lambda f, kb: sqlrag.rag_service("ragmd", EMBEDDER, f / "x.ragmd").search("common"),
    "reembed": lambda f, kb: sqlrag.reembed(kb, "hashing-96", provider="hashing", progress="off"),
    "register": lambda f, kb: _registered(kb),
    "repair": lambda f, kb: sqlrag.repair(kb),
    "retrieve": lambda f, kb: sqlrag.retrieve("common", sqlrag.RetrievePlan(), kb),
    "semantic_join": lambda f, kb: sqlrag.semantic_join(kb, kb),
    "trend": lambda f, kb: sqlrag.trend("common", kb, threshold=0.5),
    "update_embeddings": lambda f, kb: sqlrag.update_embeddings(f / "docs", kb, progress="off"),
    "update_rows": lambda f, kb: sqlrag.update_rows(kb, progress="off"),
    "upgrade": lambda f, kb: sqlrag.upgrade(kb),
    "validate_embedding_model": lambda f, kb: sqlrag.validate_embedding_model(kb, "hashing-64"),
    "vector_query": lambda f, kb: sqlrag.vector_query("common", kb),
    "verify_file": lambda f, kb: sqlrag.verify_file(kb),
    "Stores": lambda f, kb: _several(f, kb),
    "Store.create": lambda f, kb: Store.create(kb, 8, overwrite=True).close(),
}

READING = {
    "check": lambda s: s.check(),
    "chunks": lambda s: s.chunks(node_ids=["a.md#0"]),
    "chunks_at": lambda s: s.chunks_at([("a.md", 0)]),
    "checksums": lambda s: s.checksums(["a.md"]),
    "explain": lambda s: s.explain("common", "a.md#0"),
    "get_embedding_metadata": lambda s: s.get_embedding_metadata(),
    "get_source_documents": lambda s: s.get_source_documents(["a.md#0"]),
    "highlight": lambda s: s.highlight("common", ["common"]),
    "hybrid_query": lambda s: s.hybrid_query("common"),
    "lexical_query": lambda s: s.lexical_query("common"),
    "query_vector": lambda s: s.query_vector("common"),
    "retrieve": lambda s: s.retrieve("common", sqlrag.RetrievePlan()),
    "row_sources": lambda s: s.row_sources(),
    "select": lambda s: s.select("serving/alive"),
    "sources": lambda s: s.sources(["a.md"]),
    "snippets": lambda s: s.snippets("common", ["a.md#0"]),
    "vector_query": lambda s: s.vector_query("common"),
    "vectors": lambda s: s.vectors(["a.md#0"]),
    "repr_html": lambda s: s._repr_html_(),
}

WRITING = {
    "add_chunks": lambda s: s.add_chunks([Chunk("n", 0, "new word")], vectors=[VECTOR]),
    "delete_chunks": lambda s: s.delete_chunks(node_ids=["a.md#0"]),
    "delete_documents": lambda s: s.delete_documents(doc_ids=["a.md"]),
    "embed_query": lambda s: s.embed_query("a question"),
    "index": lambda s: s.index([Chunk("n", 0, "new word")], vectors=[VECTOR]),
    "upsert": lambda s: s.upsert([Document("n", "new word")], [Chunk("n", 0, "new word")], [VECTOR]),
}

COMMANDS = (
    "info kb.duckdb", "check kb.duckdb", "repair kb.duckdb", "compact kb.duckdb", "lexical-query common --db kb.duckdb",
    "hybrid-query common --db kb.duckdb", "get-source-documents a.md#0 --db kb.duckdb", "convert kb.duckdb o.ragmd",
    "update docs kb.duckdb", "delete a.md --db kb.duckdb", "map kb.duckdb", "attach-sql kb.duckdb",
    "embed common --db kb.duckdb", "explain common a.md#0 --db kb.duckdb",
)  # fmt: skip


def _several(folder, kb):
    with Stores([kb, folder / "other.duckdb"]) as stores:
        for name, ask in READING.items():
            if name not in ("check", "explain", "repr_html"):
                ask(stores)


def _of_store(name, ask, read_only):
    def call(folder, kb):
        with Store(kb, read_only=read_only) as store:
            ask(store)

    return call


def _of_command(command):
    def call(folder, kb):
        before = Path.cwd()
        os.chdir(folder)
        try:
            done = CliRunner().invoke(app, command.split())
        finally:
            os.chdir(before)
        assert "not expected" not in done.output, done.output
        assert done.exit_code in (0, 1), done.output

    return call


EVERY = {
    **CALLS,
    **{f"Store.{name}": _of_store(name, ask, True) for name, ask in READING.items()},
    **{f"Store.{name}": _of_store(name, ask, False) for name, ask in WRITING.items()},
    **{f"sqlrag {command}": _of_command(command) for command in COMMANDS},
}

# Functions that touch no file, or whose files are models and not stores.
ELSEWHERE = {
    "build_prompt", "chunk", "drop_near_duplicates", "fit_context", "fuse", "load_embedder", "load_reranker", "metrics",
    "models", "package", "plot_ranks", "print_results", "reciprocal_rank_fusion", "rerank", "pull", "push",
}  # fmt: skip


def test_fault_S8_every_public_function_is_broken_here():
    functions = {name for name in sqlrag.__all__ if inspect.isfunction(getattr(sqlrag, name))}
    asynchronous = {name for name in functions if inspect.iscoroutinefunction(getattr(sqlrag, name))}
    assert functions - asynchronous - ELSEWHERE - CALLS.keys() == set()
    methods = {name for name, value in inspect.getmembers(Store, inspect.isfunction) if not name.startswith("_")}
    assert methods - {*READING, *WRITING} - {"check_embedder", "close", "cursor", "embedder"} == set()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return a folder of sound files; the store has room for a damage in each of its tables."""
    folder = tmp_path_factory.mktemp("whole")
    pages = {f"{name}_md": f"# {name}\n\ncommon word {name}\n\n## More\n\nanother {name}\n" for name in "abcdefgh"}
    path = build(folder, **pages)
    (folder / "rows.csv").write_text("id,body\n1,a common row\n2,another row\n")
    sqlrag.index_rows(folder / "rows.csv", path, key="id", text="body", progress="off")
    sqlrag.corpus_map(path)
    write(folder / "others", z_md="# Z\n\ncommon other word\n")
    sqlrag.prepare_embeddings(folder / "others", folder / "other.duckdb", **HASHING)
    for name in ("x.ragmd", "x.rag", "x.parquet", "vectors-x.faiss"):
        sqlrag.convert(folder / "other.duckdb", folder / name)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """Return a function that copies the files anew."""

    def make():
        target = tmp_path / "work"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(whole, target)
        return target

    return make


def blocks(whole):
    return range(HEAD, (whole / "kb.duckdb").stat().st_size, BLOCK)


def damage(path, at, seed=0):
    """Turn one bit in the block that begins there."""
    data = bytearray(path.read_bytes())
    place = min(at + 100 + random.Random(seed).randrange(2000), len(data) - 1)
    data[place] ^= 1
    path.write_bytes(data)


def only_known_errors(call, folder):
    try:
        call(folder, folder / "kb.duckdb")
    except SqlragError as raised:
        error = raised
    else:
        return None
    assert ".building" not in str(error)
    return error


def damaged_at(name, at, folder):
    damage(folder / "kb.duckdb", at)
    return only_known_errors(EVERY[name], folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_fault_S8_a_damage_anywhere_raises_no_raw_error(name, whole, folder):
    for at in random.Random(name).sample(list(blocks(whole)), 2):
        damaged_at(name, at, folder())


@pytest.mark.rest
def test_fault_S8_a_damaged_file_is_named_and_not_the_output(whole, folder):
    for at in list(blocks(whole))[::3]:
        work = folder()
        damage(work / "kb.duckdb", at)
        for name in ("export_ragmd", "merge", "compact"):
            error = only_known_errors(CALLS[name], work)
            assert error is None or str(error).startswith(str(work / "kb.duckdb")), error


@pytest.mark.rest
def test_fault_S8_a_key_that_is_taken_is_a_store_error(folder):
    kb = folder() / "kb.duckdb"
    with Store(kb, read_only=False) as store:
        with pytest.raises(StoreError, match=r"kb\.duckdb: rows have keys"), reported(kb):
            store.cursor().execute("INSERT INTO collections SELECT * FROM collections")
        with pytest.raises(duckdb.ConstraintException):  # a program's own SQL has DuckDB's own errors
            store.cursor().execute("INSERT INTO collections SELECT * FROM collections")


class FailingDisk:
    """Let the n-th call of the system on a file in a folder fail; n = 0 counts them."""

    CALLS = ("stat", "lstat", "open", "listdir", "scandir", "mkdir", "rename", "replace", "link", "unlink", "fsync")

    def __init__(self, folder, number, error):
        self.folder, self.number, self.error, self.count = str(folder), number, error, 0

    def __enter__(self):
        self.patch = pytest.MonkeyPatch()
        for name in self.CALLS:
            self.patch.setattr(os, name, self._failing(getattr(os, name)))
        for module in (io, builtins):
            self.patch.setattr(module, "open", self._failing(module.open))
        return self

    def __exit__(self, *_):
        self.patch.undo()

    def _failing(self, real):
        def call(*arguments, **named):
            first = arguments[0] if arguments else "."
            ours = isinstance(first, (str, os.PathLike)) and os.fspath(first).startswith(self.folder)
            if ours or (real.__name__ == "fsync" and self.count):
                self.count += 1
                if self.count == self.number:
                    raise OSError(self.error, os.strerror(self.error), os.fspath(first) if ours else None)
            return real(*arguments, **named)

        return call


ERRORS = (errno.EIO, errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EMFILE)


def calls_of(name, folder):
    work = folder()
    with FailingDisk(work, 0, errno.EIO) as disk:
        only_known_errors(EVERY[name], work)
    return disk.count


def fail_at(name, number, folder):
    work = folder()
    with FailingDisk(work, number, ERRORS[number % len(ERRORS)]):
        only_known_errors(EVERY[name], work)
    assert [file.name for file in work.iterdir() if ".building" in file.name and number % len(ERRORS)] == []


_IN_PROCESS = [name for name in EVERY if not name.startswith("sqlrag ")]


@pytest.mark.slow
@pytest.mark.parametrize("name", _IN_PROCESS)
def test_fault_S8_a_disk_that_fails_at_any_call_raises_no_raw_error(name, folder):
    numbers = range(1, calls_of(name, folder) + 1)
    for number in sorted(random.Random(name).sample(numbers, min(4, len(numbers)))):
        fail_at(name, number, folder)


LIMITED = """
import resource, signal, sys
from pathlib import Path
from tests.engines.duckdb.test_failures import EVERY, only_known_errors
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
folder, limit = Path(sys.argv[1]), int(sys.argv[2])
sys.dont_write_bytecode = True  # the import system would keep what was cut off at the limit
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for name in sys.argv[3:]:
    error = only_known_errors(EVERY[name], folder)
    print(name, "|", error)
"""


@pytest.mark.rest
@pytest.mark.skipif(os.name == "nt", reason="needs limits of POSIX")
@pytest.mark.parametrize("limit", [0, 4096, 200_000])
def test_fault_S8_writes_that_the_system_refuses(limit, folder):
    """As a full disk, for DuckDB and Python alike: no file may become larger than the limit."""
    work = folder()
    names = ["prepare_embeddings", "convert", "export_ragfile", "export_parquet", "export_faiss_json", "merge"]
    names += ["compact", "reembed", "add_documents", "delete_documents", "Store.upsert", "import_ragmd"]
    lines = dict(line.split(" | ") for line in python(LIMITED, work, limit, *names).splitlines())
    assert lines.keys() == set(names)
    for name in ("prepare_embeddings", "merge", "compact", "reembed"):
        assert "raise the limit (ulimit -f)" in lines[name], lines[name]
        assert "disk is full" not in lines[name]
    with Store(work / "kb.duckdb", read_only=False) as store:
        assert store.check() == []


# What the messages say.


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "The disk is full"),
        (errno.EROFS, "can only be read"),
        (errno.EIO, "fails: copy"),
        (errno.EACCES, "the right to write"),
        (errno.EDQUOT, "quota"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EMFILE, "ulimit -n"),
    ],
)
def test_fault_S30_the_remedy_fits_what_the_system_said(number, words):
    of_system = OSError(number, os.strerror(number), "/d/.kb.duckdb.1-a.building")
    of_duckdb = duckdb.IOException(f'IO Error: Could not write file "/d/.kb.duckdb.1-a.building": {of_system.strerror}')
    for error in (of_system, of_duckdb):
        said = str(failure("/d/kb.duckdb", error, "None was made", "/d/.kb.duckdb.1-a.building"))
        assert words in said
        assert said.startswith("/d/kb.duckdb could not be written: ")
        assert "None was made." in said
        assert "building" not in said
        assert ("disk is full" in said) == (number == errno.ENOSPC)


def test_fault_S30_an_unfinished_file_is_not_said_to_be_kept(folder, monkeypatch):
    work = folder()

    def refuse(con, *_):
        raise duckdb.IOException("IO Error: Could not write file: No space left on device")

    monkeypatch.setattr("sqlrag.ingest.build.refresh_counts", refuse)
    with pytest.raises(StoreError) as caught:
        CALLS["prepare_embeddings"](work, None)
    assert str(caught.value).startswith(str(work / "o.duckdb"))
    assert "None was made. The disk is full" in str(caught.value)
    assert "log beside" not in str(caught.value)
    with pytest.raises(StoreError, match="The file is as it was"):
        CALLS["build_over"](work, work / "kb.duckdb")


# A damaged log.


def test_fault_S30_what_is_in_no_log_is_not_said_to_be_in_one(folder, monkeypatch):
    kb = folder() / "kb.duckdb"

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("sqlrag.engines.duckdb.database.write_journal", full)
    with pytest.raises(StoreError, match=r"No space left on device\. Nothing was changed\. The disk is full"):
        sqlrag.repair(kb)


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_fault_S30_a_backup_that_cannot_be_written_is_named(folder, monkeypatch, number):
    kb = folder() / "kb.duckdb"

    def refuse(_, target):
        raise OSError(number, os.strerror(number), *([str(target)] if number == errno.EROFS else []))

    monkeypatch.setattr("sqlrag.engines.duckdb.database.copy_file", refuse)
    copy = kb.with_name("copy.duckdb")
    with pytest.raises(StoreError) as raised:
        sqlrag.backup(kb, copy)
    assert str(raised.value).startswith(f"{copy} could not be written: {os.strerror(number)}. None was made. ")
    assert raised.value.path == str(copy)


@pytest.fixture
def log(folder):
    """Return a file beside which a killed process left a log."""
    work = folder()
    code = (
        "import os, sys, sqlrag\nfrom pathlib import Path\nfrom tests.support.helpers import HASHING\n"
        "from sqlrag.engines.duckdb.database import Database\nDatabase.checkpoint = lambda self: None\n"
        "store = sqlrag.Store(sys.argv[1], read_only=False)\n"
        "store.index([sqlrag.Chunk('n', 0, 'new word')], vectors=[[1.0] * 64])\nos._exit(0)\n"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(work / "kb.duckdb")], check=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    path = work / "kb.duckdb.wal"
    assert path.stat().st_size > 1000
    return path


@pytest.mark.rest
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_fault_S11_a_damaged_log_is_named_and_the_remedy_works(log, share):
    kb = log.with_suffix("")
    data = bytearray(log.read_bytes())
    data[int(len(data) * share)] ^= 1
    log.write_bytes(data)
    for open_it in (lambda: Store(kb), lambda: Store(kb, read_only=False), lambda: sqlrag.compact(kb)):
        with pytest.raises(NotAStoreError, match="The file itself may be whole") as caught:
            open_it()
    remedy = str(caught.value).rpartition(": ")[2]
    move, _, checking = remedy.partition("; ")
    subprocess.run(move.split(), check=True)
    done = CliRunner().invoke(app, checking.split()[1:])
    assert (done.exit_code, "no problems found" in done.output) == (0, True), done.output
    assert len(sqlrag.lexical_query("common", kb)) == 5


@pytest.mark.slow
def test_fault_S11_a_log_of_another_file_is_told_of(folder):
    """It is neither read nor lost; newer DuckDBs see by an id that it is another file's."""
    work = folder()
    kb, log = work / "kb.duckdb", work / "kb.duckdb.wal"
    code = (
        "import duckdb, os, sys\ncon = duckdb.connect(sys.argv[1])\ncon.execute('CREATE TABLE t (i INTEGER)')\n"
        "con.execute('CHECKPOINT')\ncon.execute('INSERT INTO t VALUES (1)')\nos._exit(0)"
    )
    subprocess.run([sys.executable, "-c", code, work / "other.duckdb"], check=True)
    (work / "other.duckdb.wal").rename(log)
    content = log.read_bytes()
    with pytest.raises(NotAStoreError, match="of another file") as caught:
        Store(kb)
    assert log.read_bytes() == content
    move, _, checking = str(caught.value).rpartition(": mv ")[2].partition("; ")
    subprocess.run(["mv", *move.split()], check=True)
    assert sqlrag.check(checking.removeprefix("sqlrag check ")) == []


def test_fault_S13_tables_that_do_not_fit_together_are_a_store_error(folder):
    """As in a mix of two editions, whose blocks are each whole."""
    kb = folder() / "kb.duckdb"
    with Store(kb, read_only=False) as store:
        store.cursor().execute("DELETE FROM source_documents WHERE doc_id = 'a.md'")
    with pytest.raises(StoreError, match=r"damaged: its tables name 'a\.md'"):
        sqlrag.get_source_documents(["a.md#0"], kb)


def test_fault_S12_info_on_a_file_with_another_view(folder, monkeypatch):
    work = folder()
    monkeypatch.chdir(work)
    with duckdb.connect("kb.duckdb") as con:
        con.execute("CREATE OR REPLACE VIEW index_status AS SELECT 1 AS something")
    done = CliRunner().invoke(app, ["info", "kb.duckdb"])
    assert done.exit_code == 1
    assert "not expected" not in done.output
    assert "kb.duckdb" in done.output
    assert "sqlrag check" in done.output


NONSENSE = {
    **dict.fromkeys(
        (
            "unique_files",
            "source_total_characters",
            "chunks_total_characters",
            "total_chunks",
            "total_source_documents",
        ),
        ("zz", "-1", "nan", ""),
    ),
    **dict.fromkeys(("min_chunk_size", "max_chunk_size", "median_chunk_size", "mean_chunk_size"), ("zz", "inf")),
    **dict.fromkeys(("chunk_size", "embedding_dimensions"), ("zz", "0", "1.5", "")),
    **dict.fromkeys(("chunk_overlap", "max_tokens"), ("zz", "-1")),
    **dict.fromkeys(("include_headers", "normalized", "hybrid_search_enabled", "llama_index_compatible"), ("zz", "1")),
    "chunking_strategy": ("zz",),
    "chunk_unit": ("zz",),
    "header_weight": ("zz", "nan", "-1"),
    "stemmer": ("zz", ""),
    "fingerprint": ("zz", "[]", "[1, 2]", "{}", "5", "[" * 30_000),
    "embedding_options": ("zz", "[]", "null"),
}


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return build(tmp_path_factory.mktemp("small"), a_md="# A\n\ncommon\n")


@pytest.mark.rest
@pytest.mark.parametrize("key", NONSENSE)
def test_fault_S3_nonsense_in_the_metadata_is_named_and_repaired(small, tmp_path, key):
    kb = shutil.copy(small, tmp_path / "kb.duckdb")
    for value in reversed(NONSENSE[key]):
        with duckdb.connect(str(kb)) as con:
            con.execute("UPDATE embedding_metadata SET value = $1 WHERE key = $2", [value, key])
        problem = {one.check: one for one in sqlrag.check(kb, quick=True)}["wrong_metadata"]
        assert problem.examples[0].startswith(f"{key} is {value!r:.40}, not ")
    for call in (
        lambda path: sqlrag.lexical_query("common", path),
        lambda path: sqlrag.add_documents({"n.md": b"new"}, path),
        lambda path: sqlrag.export_ragmd(path, path.with_suffix(".ragmd"), overwrite=True),
        lambda path: sqlrag.reembed(path, embedder=EMBEDDER),
    ):
        copy = shutil.copy(kb, tmp_path / "copy.duckdb")
        with suppress(SqlragError):  # and nothing else
            call(copy)
    with pytest.raises(StoreError, match=f"damaged: {key} is .*sqlrag repair"):
        sqlrag.get_embedding_metadata(kb)
    assert sqlrag.repair(kb).left == ()
    assert len(sqlrag.lexical_query("common", kb)) == 1
    assert sqlrag.get_embedding_metadata(kb)["embedding"]["dimensions"] == 64


def test_fault_S3_other_dimensions_than_those_of_the_vectors_are_named(small, tmp_path):
    kb = shutil.copy(small, tmp_path / "kb.duckdb")
    with duckdb.connect(str(kb)) as con:
        con.execute("UPDATE embedding_metadata SET value = '32' WHERE key = 'embedding_dimensions'")
        con.execute("UPDATE embedding_metadata SET value = 'null' WHERE key = 'fingerprint'")
    problem = {one.check: one for one in sqlrag.check(kb, quick=True)}["wrong_metadata"]
    assert problem.examples == ("embedding_dimensions is 32, but the vectors have 64",)
