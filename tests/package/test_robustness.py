"""What must hold when files, processes and vectors are not as they should be."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
import threading

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag import Chunk, Document, Store, check, convert, hybrid_query, lexical_query, prepare_embeddings
from sqlrag.cli.search import hybrid_query as hybrid_command
from sqlrag.embedders.hashing import HashingEmbedder
from sqlrag.errors import InputError, NotAStoreError, StoreError, StoreExistsError, StoreLockedError
from tests.support.helpers import HASHING, build, ids, python, write


class Slow(HashingEmbedder):
    """Waits before its first texts until it is let go."""

    def __init__(self, go):
        super().__init__("hashing-64")
        self.go = go
        self.started = threading.Event()

    def embed(self, texts, *, kind):
        self.started.set()
        assert self.go.wait(30)
        return super().embed(texts, kind=kind)


def small_store(path, texts, vectors=None):
    store = Store.create(path, 4)
    vectors = np.eye(4, dtype=np.float32)[: len(texts)] if vectors is None else vectors
    store.upsert(
        [Document(f"{i}", text) for i, text in enumerate(texts)],
        [Chunk(f"{i}", 0, t) for i, t in enumerate(texts)],
        vectors,
    )
    return store


class TestOutput:
    def test_create_never_overwrites_a_file_that_is_no_store(self, tmp_path):
        path = tmp_path / "precious.txt"
        path.write_text("my thesis")
        with pytest.raises(NotAStoreError, match="not overwritten"):
            Store.create(path, 8, overwrite=True)
        assert path.read_text() == "my thesis"

    @pytest.mark.slow
    def test_a_name_that_duckdb_cannot_work_with_is_refused(self, tmp_path):
        """Its log would be elsewhere, or no search would find its tables."""
        kb, names = (
            build(tmp_path, a_md="alpha"),
            {
                "fts_main_documents.duckdb": "has a schema",
                ".FTS_main_documents.v2.db": "has a schema",
                "what?.duckdb": "for options",
                "a?b/kb.duckdb": "for options",
                "back\\slash.duckdb": "backslash",
            },
        )
        (tmp_path / "out" / "a?b").mkdir(parents=True)
        for name, why in names.items():
            path = tmp_path / "out" / name
            for make in (sqlrag.backup, convert, lambda source, target: prepare_embeddings(source.parent, target)):
                with pytest.raises(InputError, match=why):
                    make(kb, path)
            assert [file.name for file in path.parent.iterdir() if file.is_file()] == []
            path.write_bytes(kb.read_bytes())
            for use in (Store, check, sqlrag.compact, sqlrag.upgrade):
                with pytest.raises(InputError, match=why):
                    use(path)
            path.unlink()

    @pytest.mark.slow
    def test_any_other_name_will_do(self, tmp_path):
        kb = build(tmp_path, a_md="alpha")
        for name in ("main", "temp", "a'b", 'é.a"b;c'):
            path = tmp_path / f"{name}.duckdb"
            path.write_bytes(kb.read_bytes())
            assert sqlrag.add_documents({"b.md": b"# B\n\nbeta"}, path).added == ["b.md"]
            sqlrag.compact(path)
            assert ids(lexical_query("beta", path)) == ["b.md#0"]

    def test_create_never_overwrites_a_store_that_is_open(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with Store(path), pytest.raises(StoreLockedError, match="open in this process"):
            Store.create(path, 8, overwrite=True)

    @pytest.mark.slow
    def test_two_threads_may_build_the_same_output(self, tmp_path):
        root, go, made, errors = write(tmp_path / "docs", a_md="alpha"), threading.Event(), [], []

        def run(embedder):
            try:
                made.append(
                    prepare_embeddings(root, tmp_path / "kb.duckdb", overwrite=True, embedder=embedder, progress="off")
                )
            except Exception as error:
                errors.append(error)

        embedders = [Slow(go), Slow(go)]
        threads = [threading.Thread(target=run, args=(embedder,)) for embedder in embedders]
        for thread in threads:
            thread.start()
        assert all(embedder.started.wait(30) for embedder in embedders)
        go.set()
        for thread in threads:
            thread.join()
        assert made, errors
        assert all(isinstance(error, StoreLockedError) for error in errors)
        assert ids(hybrid_query("alpha", tmp_path / "kb.duckdb", query_vector=[1.0] * 64)) == ["a.md#0"]
        assert [file.name for file in tmp_path.iterdir() if "building" in file.name] == []

    def test_without_overwrite_the_second_of_two_builds_fails(self, tmp_path):
        root, go = write(tmp_path / "docs", a_md="alpha"), threading.Event()
        slow, errors = Slow(go), []

        def run():
            try:
                prepare_embeddings(root, tmp_path / "kb.duckdb", embedder=slow, progress="off")
            except StoreExistsError as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert slow.started.wait(30)
        prepare_embeddings(write(tmp_path / "other", b_md="beta"), tmp_path / "kb.duckdb", **HASHING)
        go.set()
        thread.join()
        assert "made by another process in the meantime" in str(errors[0])
        assert ids(lexical_query("beta", tmp_path / "kb.duckdb")) == ["b.md#0"]

    @pytest.mark.slow
    def test_a_writer_that_came_during_the_build_loses_nothing(self, tmp_path):
        path, go = build(tmp_path, a_md="alpha"), threading.Event()
        slow, errors = Slow(go), []

        def run():
            try:
                prepare_embeddings(tmp_path / "docs", path, overwrite=True, embedder=slow, progress="off")
            except StoreLockedError as error:
                errors.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        assert slow.started.wait(30)
        code = (
            "import sys, sqlrag, numpy as np\n"
            "store = sqlrag.Store(sys.argv[1], read_only=False)\n"
            "store.upsert([sqlrag.Document('w', 'walrus')], [sqlrag.Chunk('w', 0, 'walrus')], np.ones((1, 64)))\n"
            "print('written', flush=True)\n"
            "sys.stdin.read()\n"
        )
        writer = subprocess.Popen(
            [sys.executable, "-c", code, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout.readline() == "written\n"
        go.set()
        thread.join()
        writer.communicate("")
        assert f"in use by process {writer.pid}" in str(errors[0])
        assert ids(lexical_query("walrus", path)) == ["w#0"]

    @pytest.mark.slow
    def test_a_store_that_was_replaced_is_read_beside_the_old_one(self, tmp_path):
        path = build(tmp_path, a_md="oldword")
        newer, third = (build(tmp_path, f"{word}.duckdb", folder=word, a_md=word) for word in ("newword", "thirdword"))
        with Store(path) as old:
            newer.replace(path)
            with Store(path) as new:
                third.replace(path)
                assert ids(lexical_query("thirdword", path)) == ["a.md#0"]
                assert ids(new.lexical_query("newword")) == ids(old.lexical_query("oldword")) == ["a.md#0"]
                assert new.lexical_query("thirdword") == old.lexical_query("newword") == []
            with pytest.raises(StoreLockedError, match="has been replaced since"):
                Store(path, read_only=False)
        assert ids(lexical_query("thirdword", path)) == ["a.md#0"]
        assert [file.name for file in tmp_path.iterdir() if file.name.startswith(".")] == []

    @pytest.mark.slow
    def test_a_second_store_does_not_give_up_the_lock(self, tmp_path):
        """POSIX drops all locks of a process on a file when it closes any descriptor of it."""
        path = build(tmp_path, a_md="alpha")
        code = "import sys, duckdb\ntry: duckdb.connect(sys.argv[1])\nexcept duckdb.IOException: print('locked')"
        with Store(path, read_only=False), Store(path):
            assert python(code, path) == "locked\n"
            check(path)
            assert python(code, path) == "locked\n"
        with duckdb.connect(str(path)):
            lexical_query("alpha", path)
            assert python(code, path) == "locked\n"

    @pytest.mark.parametrize("most", [0, -1, None, "x", 1e6, True])
    def test_a_size_limit_is_a_whole_number(self, tmp_path, most):
        with pytest.raises(InputError, match="max_bytes must be"):
            prepare_embeddings(
                write(tmp_path / "docs", a_md="alpha"), tmp_path / "kb.duckdb", max_bytes=most, **HASHING
            )

    @pytest.mark.parametrize("path", [None, 5, b"kb.duckdb", "a\0b", "~nobody-of-this-name/kb.duckdb"])
    def test_what_cannot_be_a_path_is_refused(self, path):
        with pytest.raises(InputError, match=r"cannot be the path of a file|path must be a path"):
            Store(path)


class TestDamage:
    @pytest.mark.parametrize("value", ["'nan'::FLOAT", "NULL"])
    def test_case_F2_a_bad_vector_is_found_and_passed_over(self, tmp_path, value):
        with small_store(tmp_path / "kb.duckdb", ["alpha", "beta", "alpha beta"]) as store:
            store.cursor().execute(
                f"UPDATE documents SET embedding = array_value(1::FLOAT, {value}, 0, 0) WHERE doc_id = '1'"
            )
            assert [(problem.check, problem.examples) for problem in store.check() if "vector" in problem.check] == [
                ("not_unit_vectors", ("1#0",))
            ]
            for exact in (False, True):
                assert ids(store.vector_query(query_vector=[1, 1, 1, 1], exact=exact)) == ["0#0", "2#0"]
            for fusion in ("adaptive", "rrf", "weighted", "convex"):
                found = store.hybrid_query("beta", query_vector=[1, 1, 1, 1], fusion=fusion)
                assert set(ids(found)) == {"0#0", "1#0", "2#0"}
                assert all(np.isfinite(row["score"]) for row in found)

    def test_a_damaged_table_of_metadata_is_said(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with duckdb.connect(str(path)) as con:
            con.execute("DELETE FROM embedding_metadata WHERE key = 'stemmer'")
        with pytest.raises(StoreError, match=r"embedding_metadata is incomplete.*stemmer"):
            Store(path)

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="only where processes fork")
    @pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
    def test_a_forked_process_searches_too(self, tmp_path):
        with Store(build(tmp_path, a_md="alpha")) as store:
            assert ids(store.hybrid_query("alpha")) == ["a.md#0"]
            child = os.fork()
            if child == 0:
                os._exit(0 if ids(store.hybrid_query("alpha")) == ["a.md#0"] else 1)
            assert os.waitpid(child, 0)[1] == 0


class TestWords:
    @pytest.mark.parametrize(
        ("text", "query"),
        [
            ("水を飲む", "水"),
            ("東京都に行く", "都"),
            ("in\u00adfor\u00adma\u00adtion", "information"),
            ("zero\u200bwidth", "zerowidth"),
            ("the ﬁlled ﬂask of eﬀort", "filled"),
            ("the eﬃcient waﬄe", "waffle"),
            ("حَبِيبِي", "حبيبي"),
            ("שָׁלוֹם", "שלום"),
        ],
    )
    def test_each_way_of_writing_a_word_finds_it(self, tmp_path, text, query):
        with small_store(tmp_path / "kb.duckdb", [text, "nothing of the kind"]) as store:
            assert ids(store.lexical_query(query)) == ["0#0"]
            assert store.cursor().execute("SELECT node_id FROM lexical_query($1)", [query]).fetchall() == [("0#0",)]
            assert store.check() == []


class TestOptions:
    @pytest.mark.parametrize("wanted", ["[1]", '"x"', "null", "1"])
    def test_a_metadata_filter_that_is_no_object_matches_nothing_in_sql(self, tmp_path, wanted):
        with small_store(tmp_path / "kb.duckdb", ["alpha"]) as store:
            rows = store.cursor().execute("FROM lexical_query('alpha', metadata := $1)", [wanted]).fetchall()
            assert rows == []

    @pytest.mark.parametrize("vector", [[0, 0, 0, 0], [float("nan"), 1, 0, 0], [float("inf"), 0, 0, 0]])
    @pytest.mark.parametrize("macro", ["vector_query", "exact_vector_query"])
    def test_a_vector_without_a_direction_is_an_error_in_sql(self, tmp_path, macro, vector):
        with (
            small_store(tmp_path / "kb.duckdb", ["alpha"]) as store,
            pytest.raises(duckdb.Error, match="zero or not finite"),
        ):
            store.cursor().execute(f"FROM {macro}($1::FLOAT[4])", [str(vector)]).fetchall()

    @pytest.mark.parametrize("top_k", [2**31, 10**30])
    def test_no_one_wants_more_than_a_file_can_hold(self, tmp_path, top_k):
        with small_store(tmp_path / "kb.duckdb", ["alpha"]) as store, pytest.raises(InputError, match="top_k must be"):
            store.lexical_query("alpha", top_k=top_k)

    def test_the_command_line_has_the_defaults_of_the_library(self):
        library = inspect.signature(sqlrag.hybrid_query).parameters
        command = inspect.signature(hybrid_command).parameters
        shared = ["top_k", "alpha", "vector_weight", "k1", "b", "min_similarity"]
        assert {name: command[name].default for name in shared} == {name: library[name].default for name in shared}

    def test_one_string_is_no_list_of_pages(self, tmp_path):
        root = write(tmp_path / "docs", a_md="alpha", b_pdf=b"%PDF-1.4 x")
        prepared = prepare_embeddings(root, tmp_path / "kb.duckdb", pdf_extractor=lambda data: "one string", **HASHING)
        assert [failure.doc_id for failure in prepared.report.failures] == ["b.pdf"]
        assert "one string a page" in prepared.report.failures[0].reason

    def test_a_run_without_blanks_has_a_bound(self, tmp_path):
        """Some tokenizers take encoded data for one token: 32 characters for each token of the limit is the most."""
        # With nothing beside it, the page would be refused as not written for readers.
        root = write(tmp_path / "docs", a_md="x" * 30_000 + "\n\n" + "The pump was checked.\n" * 1200)
        prepared = prepare_embeddings(root, tmp_path / "kb.duckdb", chunk_size=50, **HASHING)
        with Store(prepared.path) as store:
            statement = "SELECT max(length(text)), count(*) FROM documents WHERE text LIKE '%xx%'"
            longest = store.cursor().execute(statement).fetchall()
        assert longest[0][0] <= 32 * 50
        assert longest[0][1] >= 19
