"""``sqlrag.connect`` and ``sqlrag.register``: DuckDB connections whose SQL embeds, searches, compares and reranks."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import sqlrag
from sqlrag import (
    InputError,
    ModelMismatchError,
    ModelUnavailableError,
    NotAStoreError,
    NotFoundError,
    ProviderError,
    Store,
    StoreLockedError,
)
from sqlrag.adapters import connection
from sqlrag.adapters.connection import clear_error, interruptible
from sqlrag.embedders import HashingEmbedder
from sqlrag.engines.duckdb.attach import check_name
from sqlrag.engines.duckdb.schema import MACROS
from tests.support.cross_encoder import make_cross_encoder
from tests.support.helpers import ROOT, build
from tests.support.stores import make_small_store

FILES = {
    "late_md": "# Late\n\nlate delivery of the parcel\n\n# Lamp\n\nThe green lamp",
    "battery_md": "battery dies quickly",
    "other_txt": "The delivery was late, and the box wet.",
}
QUESTION = "late delivery"


class Recording(HashingEmbedder):
    """Keeps what it was asked, and the threads that asked."""

    def __init__(self, name="hashing-64", **prefixes):
        super().__init__(name, **prefixes)
        self.calls: list[tuple[str, list[str]]] = []

    def embed(self, texts, *, kind):
        self.calls.append((kind, list(texts)))
        return super().embed(texts, kind=kind)

    def asked(self, kind):
        """Return the texts of the calls of a kind, without that by which the file's model is known."""
        return [text for of, texts in self.calls if of == kind for text in texts if text != sqlrag.embedders.PROBE_TEXT]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), **FILES)


@pytest.fixture
def kb(made, tmp_path):
    """A file of each test's own: functions belong to the database, which is open as long as anybody has it."""
    return Path(shutil.copy(made, tmp_path / "kb.duckdb"))


@pytest.fixture
def con(kb):
    with sqlrag.connect(kb, verbose=False) as con:
        yield con


def rows(con, sql, *values):
    return con.execute(sql, list(values)).fetchall()


def one(con, sql, *values):
    return rows(con, sql, *values)[0][0]


class TestSearching:
    @pytest.mark.slow
    def test_the_question_is_embedded_in_the_statement_and_the_rows_are_those_of_python(self, con, kb):
        in_one = rows(con, f"SELECT node_id, score FROM hybrid_query('{QUESTION}', embed('{QUESTION}'), k := 3)")
        with Store(kb) as store:
            wanted = [(row["node_id"], row["score"]) for row in store.hybrid_query(QUESTION, top_k=3)]
        assert in_one == wanted
        assert rows(con, f"SELECT node_id, score FROM search('{QUESTION}', k := 3)") == wanted
        assert rows(con, "SELECT node_id, score FROM search($1, k := $2)", QUESTION, 3) == wanted

    @pytest.mark.slow
    def test_the_vector_is_that_of_a_store_to_the_bit(self, con, kb):
        vector = np.array(one(con, f"SELECT embed('{QUESTION}')"), dtype=np.float32)
        with Store(kb) as store:
            assert (vector == store._searcher.embed_query(QUESTION)).all()
        assert one(con, f"SELECT typeof(embed('{QUESTION}'))") == "FLOAT[64]"

    def test_search_has_the_options_of_hybrid_query(self, con):
        options = "k := 5, fusion := 'rrf', pool := 20, collection := ['default']"
        found = rows(con, f"FROM search('{QUESTION}', {options})")
        assert found == rows(con, f"FROM hybrid_query('{QUESTION}', embed('{QUESTION}'), {options})")
        assert found

    @pytest.mark.slow
    def test_a_question_that_is_null_or_blank_is_an_error_that_says_so(self, con):
        for question in (None, "", "  ", "\n\t", "\u200b", "\u00a0\u3000", "\ufeff\u00ad"):
            with pytest.raises(duckdb.Error, match="no question to search for"):
                con.execute("FROM search($1)", [question])
        assert rows(con, "FROM search($1, k := 1)", "\n\u200blate\u200b")

    def test_the_file_is_the_database_so_that_all_of_it_needs_no_prefix(self, con):
        assert one(con, "SELECT count(*) FROM sources") == 3
        assert rows(con, "SELECT node_id FROM lexical_query('battery')") == [("battery.md#0",)]
        assert one(con, "SELECT count(*) FROM more_like('late.md#0')") > 0

    def test_cursors_have_the_functions_but_not_the_macro(self, con):
        cursor = con.cursor()
        assert rows(cursor, f"SELECT node_id FROM hybrid_query('{QUESTION}', embed('{QUESTION}'), k := 1)")
        with pytest.raises(duckdb.CatalogException, match="search"):
            cursor.execute("FROM search('x')")


class TestEmbed:
    def test_documents_and_questions_have_their_own_form(self, tmp_path):
        model = Recording(query_prefix="ask: ", passage_prefix="passage: ")
        (tmp_path / "docs").mkdir()
        (tmp_path / "docs" / "a.txt").write_text("some text")
        sqlrag.prepare_embeddings(tmp_path / "docs", tmp_path / "p.duckdb", embedder=model, verbose=False)
        with sqlrag.connect(tmp_path / "p.duckdb", embedder=model, verbose=False) as con:
            model.calls.clear()
            asked, told = rows(con, "SELECT embed('late'), embed('late', 'document')")[0]
            assert ("query", ["ask: late"]) in model.calls
            assert ("document", ["passage: late"]) in model.calls
            assert asked != told
            mixed = rows(con, "SELECT embed('late', k) FROM (VALUES ('query'), ('document'), (NULL)) v(k)")
            assert mixed == [(asked,), (told,), (None,)]
            # The cosine is that of the document's form of the text and the question's form of the other.
            cosine = float(np.dot(np.array(told, float), np.array(asked, float)))
            assert one(con, "SELECT similarity('late', 'late')") == pytest.approx(cosine, abs=1e-7)

    def test_a_constant_is_embedded_once_and_kept(self, kb):
        model = Recording()
        with sqlrag.connect(kb, embedder=model) as con:
            assert one(con, "SELECT count(embed('x y')) FROM range(100_000)") == 100_000
            con.execute("FROM hybrid_query('x y', embed('x y'))")
            con.execute("FROM search('x y')")
            assert model.asked("query") == ["x y"]

    def test_distinct_texts_of_a_column_are_embedded_once_in_batches(self, kb):
        model = Recording()
        with sqlrag.connect(kb, embedder=model) as con:
            con.execute("CREATE TEMP TABLE t AS SELECT 'text ' || i % 300 AS body FROM range(30_000) r(i)")
            assert one(con, "SELECT count(similarity(body, 'text 7')) FROM t") == 30_000
            assert sorted(model.asked("document")) == sorted(f"text {i}" for i in range(300))
            assert len(model.calls) < 30

    @pytest.mark.slow
    @pytest.mark.parametrize("threads", [1, 2, 8])
    def test_threads_give_the_same_vectors(self, con, threads):
        con.execute(f"SET threads = {threads}")
        con.execute("CREATE TEMP TABLE t AS SELECT 'word' || i AS body FROM range(20_000) r(i)")
        found = rows(con, "SELECT body, embed(body, 'document') FROM t ORDER BY body LIMIT 3000")
        model = HashingEmbedder("hashing-64")
        wanted = sqlrag.embedders.embed_texts(model, [body for body, _ in found], kind="document")
        assert (np.array([vector for _, vector in found], dtype=np.float32) == wanted).all()

    def test_null_and_blank_texts_have_no_vector(self, con):
        found = rows(
            con, "SELECT embed(t), similarity(t, 'a'), similarity('a', t) FROM (VALUES (NULL), (''), (' \u200b')) v(t)"
        )
        assert found == [(None, None, None)] * 3
        assert rows(con, "SELECT embed(NULL), similarity(NULL, NULL)") == [(None, None)]

    def test_what_is_no_text_is_refused_before_anything_is_embedded(self, con):
        for argument in ("5", "5.5", "DATE '2024-01-01'", "'a'::BLOB", "['a']", "true", "{'a': 'b'}"):
            for call in ("embed({})", "similarity({}, 'a')", "similarity('a', {})"):
                with pytest.raises(duckdb.BinderException, match="No function matches"):
                    con.execute(f"SELECT {call.format(argument)}")

    def test_an_unknown_form_is_refused(self, con):
        with pytest.raises(duckdb.Error, match="kind must be 'document' or 'query', not 'passage'"):
            con.execute("SELECT embed('a', 'passage')")

    def test_what_is_kept_is_bounded_in_bytes(self, con, monkeypatch):
        kept = connection._Kept()
        monkeypatch.setattr(connection, "_kept", kept)
        monkeypatch.setattr(connection, "CACHE_BYTES", 100_000)
        con.execute("SELECT count(embed('word ' || i)) FROM range(5000) r(i)").fetchall()
        assert 50_000 < kept.bytes <= 100_000
        assert one(con, "SELECT embed('word 4999') = embed('word 4999')")
        while kept._rows:
            kept.bytes -= connection._size(*kept._rows.popitem())
        assert kept.bytes == 0


class TestSimilarity:
    def test_it_is_the_cosine_by_hand_from_minus_1_to_1(self, con):
        # hashing: "late delivery" and "late" share one of two words: 1 / √2.
        assert one(con, "SELECT similarity('late', 'late delivery')") == pytest.approx(2**-0.5, abs=1e-7)
        assert one(con, "SELECT similarity('battery', 'late delivery')") == 0
        assert one(con, "SELECT similarity('late', 'late')") <= 1

    def test_it_filters_a_table_of_an_attached_database(self, con, tmp_path):
        with duckdb.connect(str(tmp_path / "shop.duckdb")) as shop:
            shop.execute(
                "CREATE TABLE reviews AS FROM (VALUES (1, 'the battery dies'), (2, 'battery dies soon'), "
                "(5, 'lovely'), (4, NULL)) v(stars, body)"
            )
        con.execute(f"ATTACH '{tmp_path / 'shop.duckdb'}' AS shop")
        assert one(con, "SELECT avg(stars) FROM shop.reviews WHERE similarity(body, 'battery dies') > .5") == 1.5

    def test_the_question_may_be_a_column(self, con):
        found = rows(con, "SELECT similarity(t, q) FROM (VALUES ('a', 'a'), ('a', 'b'), ('b', NULL)) v(t, q)")
        assert found == [(1,), (0,), (None,)]

    def test_files_and_tables_of_arrow_are_within_reach(self, con, tmp_path):
        (tmp_path / "reviews.csv").write_text("stars,body\n1,battery dies\n5,lovely\n")
        assert rows(con, f"SELECT stars FROM '{tmp_path}/reviews.csv' WHERE similarity(body, 'battery') > .5") == [(1,)]
        reviews = pa.table({"body": ["battery dies", None, "lovely"]})  # noqa: F841 - the statement names it
        found = con.execute("SELECT body FROM reviews WHERE similarity(body, 'battery') > .5").fetchall()
        assert found == [("battery dies",)]

    def test_enums_and_json_are_texts(self, con):
        assert one(con, "SELECT similarity('late'::ENUM('late', 'x'), 'late')") == 1
        assert one(con, "SELECT similarity('\"late\"'::JSON, 'late')") == 1


class TestRerank:
    @pytest.mark.slow
    def test_the_scores_are_those_of_the_cross_encoder(self, kb, tmp_path):
        model = make_cross_encoder(tmp_path / "model")
        with sqlrag.connect(kb, reranker=str(model)) as con:
            found = rows(
                con, "SELECT t, rerank('fish', t) FROM (VALUES ('cat'), ('dog cat'), (NULL), ('')) v(t) ORDER BY ALL"
            )
        # 100 × fish (0.25), and the weights of the text: cat 1.5, dog -0.5.
        assert dict(found) == {"cat": 26.5, "dog cat": 26.0, None: None, "": None}

    def test_a_function_gets_distinct_texts_of_each_question(self, kb):
        calls = []

        def longest(question, texts):
            calls.append((question, list(texts)))
            return [len(text) for text in texts]

        with sqlrag.connect(kb, reranker=longest) as con:
            found = rows(con, "SELECT rerank(q, t) FROM (VALUES ('q', 'aa'), ('q', 'aa'), ('r', 'b')) v(q, t)")
        assert found == [(2,), (2,), (1,)]
        assert sorted(calls) == [("q", ["aa"]), ("r", ["b"])]

    def test_without_one_the_error_says_how_to_name_one(self, con):
        assert one(con, "SELECT rerank(NULL, 'a')") is None
        with pytest.raises(duckdb.Error, match="needs a cross-encoder: pass reranker="):
            con.execute("SELECT rerank('a', 'b')")

    def test_one_that_answers_nonsense_is_named(self, kb):
        message = r"returned scores of the shape \[1\] for 2 texts"
        with (
            sqlrag.connect(kb, reranker=lambda question, texts: [1.0]) as con,
            pytest.raises(duckdb.Error, match=message),
        ):
            con.execute("SELECT rerank('q', t) FROM (VALUES ('a'), ('b')) v(t)")


@pytest.fixture(scope="module")
def tickets(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    duckdb.sql(
        f"COPY (FROM (VALUES (101, 'late parcel', DATE '2024-03-01'), (102, 'red lamp', DATE '2024-03-04')) "
        f"t(id, body, day)) TO '{folder}/tickets.parquet'"
    )
    kb = Path(build(folder, "rows.duckdb", note_md="a late note"))
    sqlrag.index_rows(f"{folder}/tickets.parquet", kb, key="id", text="body", progress="off")
    return kb


class TestRows:
    @pytest.mark.slow
    @pytest.mark.parametrize(
        "search", ["search('late lamp')", "hybrid_query('late lamp', embed('late lamp'))", "lexical_query('late lamp')"]
    )
    def test_where_one_source_has_rows_searches_have_its_key_in_its_own_type(self, tickets, search):
        with sqlrag.connect(tickets) as con:
            found = rows(con, f"SELECT doc_id, row_key, typeof(row_key) FROM {search} ORDER BY doc_id")
            assert found == [
                ("note.md", None, "INTEGER"), ("tickets/101", 101, "INTEGER"), ("tickets/102", 102, "INTEGER"),
            ]  # fmt: skip
            con.execute(f"CREATE TEMP VIEW tickets AS FROM '{tickets.parent}/tickets.parquet'")
            joined = rows(
                con, f"SELECT t.*, h.score > 0 FROM {search} AS h JOIN tickets AS t ON t.id = h.row_key ORDER BY t.id"
            )
            assert [row[:2] for row in joined] == [(101, "late parcel"), (102, "red lamp")]
            scores = rows(con, f"SELECT score FROM {search}")
            assert scores == sorted(scores, reverse=True)

    @pytest.mark.slow
    def test_register_has_it_in_its_search(self, tickets):
        with duckdb.connect() as con:
            sqlrag.register(con, tickets)
            assert set(rows(con, "SELECT row_key FROM kb_search('late lamp')")) == {(101,), (102,), (None,)}

    @pytest.mark.slow
    def test_rows_of_two_sources_are_joined_by_their_views(self, tickets, tmp_path):
        table, kb = tickets.parent / "tickets.parquet", Path(shutil.copy(tickets, tmp_path))
        sqlrag.index_rows(table, kb, key="id", text="body", collection="b", progress="off")
        with sqlrag.connect(kb) as con:
            assert "row_key" not in [name for name, *_ in rows(con, "DESCRIBE FROM search('late')")]
            found = rows(con, "SELECT row_key FROM search('late') JOIN rows_of_b USING (doc_id)")
            assert sorted(found) == [(101,), (102,)]

    def test_rows_the_file_has_no_more_than_documents_have_no_key(self, con):
        assert "row_key" not in [name for name, *_ in rows(con, "DESCRIBE FROM search('late')")]


class TestConnect:
    @pytest.mark.slow
    def test_readers_are_not_blocked_and_writers_are(self, con, kb):
        with Store(kb) as store:
            assert store.hybrid_query(QUESTION)
        code = "import sys, sqlrag; print(len(sqlrag.lexical_query('late', sys.argv[1])))"
        done = subprocess.run(
            [sys.executable, "-c", code, str(kb)], capture_output=True, text=True, check=True, cwd=ROOT
        )
        assert done.stdout.strip() != "0"
        code = "import sys, sqlrag; sqlrag.Store(sys.argv[1], read_only=False)"
        done = subprocess.run(
            [sys.executable, "-c", code, str(kb)], capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert f"is in use by process {os.getpid()}" in done.stderr
        with pytest.raises(StoreLockedError):
            Store(kb, read_only=False)
        assert rows(con, "SELECT node_id FROM search('battery', k := 1)") == [("battery.md#0",)]

    def test_a_store_that_was_closed_leaves_the_lock_with_the_connection(self, con, kb):
        Store(kb).close()
        code = "import sys, duckdb; duckdb.connect(sys.argv[1])"
        done = subprocess.run([sys.executable, "-c", code, str(kb)], capture_output=True, text=True, check=False)
        assert "lock" in done.stderr

    def test_a_store_that_is_open_keeps_duckdb_from_other_files_so_it_is_refused(self, kb):
        with Store(kb), pytest.raises(StoreLockedError, match="kept from other files"):
            sqlrag.connect(kb)
        sqlrag.connect(kb).close()

    def test_a_file_that_was_replaced_meanwhile_is_not_confused_with_the_old_one(self, con, kb, made):
        shutil.copy(made, kb.with_name("new.duckdb"))
        kb.with_name("new.duckdb").replace(kb)
        with pytest.raises(StoreLockedError, match="has been replaced"):
            sqlrag.connect(kb)

    def test_another_process_that_writes_is_waited_for(self, kb):
        code = "import sys, duckdb; con = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
        with subprocess.Popen(
            [sys.executable, "-c", code, str(kb)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout.readline() == b"open\n"
            with pytest.raises(StoreLockedError, match=f"in use by process {other.pid}"):
                sqlrag.connect(kb, wait_seconds=0)
            threading.Timer(0.3, other.stdin.close).start()
            sqlrag.connect(kb, wait_seconds=30).close()

    @pytest.mark.slow
    def test_it_reads_only_unless_writing_is_asked_for(self, kb):
        with sqlrag.connect(kb) as con, pytest.raises(duckdb.Error, match="read-only"):
            con.execute("CREATE TABLE t (i INTEGER)")
        with sqlrag.connect(kb, read_only=False) as con:
            con.execute("CREATE TABLE kept AS FROM search('late', k := 2)")
        with duckdb.connect(str(kb), read_only=True) as con:
            assert one(con, "SELECT count(*) FROM kept") == 2
        assert sqlrag.check(kb) == []

    @pytest.mark.parametrize(
        ("content", "error"), [(None, NotFoundError), (b"no database", NotAStoreError), (b"", NotAStoreError)]
    )
    def test_what_is_no_store_is_refused(self, tmp_path, content, error):
        path = tmp_path / "x.duckdb"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(error):
            sqlrag.connect(path)

    def test_a_database_that_is_no_store_is_refused_and_left(self, tmp_path):
        with duckdb.connect(str(tmp_path / "x.duckdb")) as con:
            con.execute("CREATE TABLE t (i INTEGER)")
        with pytest.raises(NotAStoreError):
            sqlrag.connect(tmp_path / "x.duckdb")
        duckdb.connect(str(tmp_path / "x.duckdb")).close()  # for writing: nothing has it open

    @pytest.mark.parametrize("arguments", [{"read_only": 1}, {"embedder": 5}, {"wait_seconds": "x"}, {"trust": "yes"}])
    def test_wrong_arguments_are_refused(self, kb, arguments):
        with pytest.raises(InputError):
            sqlrag.connect(kb, **arguments)
        duckdb.connect(str(kb)).close()

    @pytest.mark.parametrize("path", [5, None, ""])
    def test_wrong_paths_are_refused(self, path):
        with pytest.raises(InputError):
            sqlrag.connect(path)

    def test_macros_of_a_stranger_are_refused_unless_trusted(self, kb):
        with duckdb.connect(str(kb)) as con:
            con.execute("CREATE OR REPLACE MACRO vector_length(v) AS 1.0")
        with pytest.raises(NotAStoreError, match="vector_length has another definition"):
            sqlrag.connect(kb)
        with sqlrag.connect(kb, trust=True) as con:
            assert one(con, "SELECT vector_length(NULL)") == 1

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("name", "kind"),
        [("search", " TABLE"), ("search", ""), ("embed", ""), ("similarity", ""), ("rerank", " TABLE")],
    )
    def test_a_macro_of_the_file_by_one_of_the_names_is_refused_with_a_way_out(self, kb, name, kind):
        with duckdb.connect(str(kb)) as con:
            con.execute(f"CREATE MACRO {name}(x) AS{kind} {'SELECT x' if kind else 'x'}")
        with pytest.raises(InputError, match=f"has a macro {name} of its own.*register"):
            sqlrag.connect(kb)
        with duckdb.connect() as con:
            sqlrag.register(con, kb)
            assert rows(con, "SELECT node_id FROM kb_search('battery', k := 1)") == [("battery.md#0",)]

    def test_a_table_of_the_file_named_search_is_another_thing(self, kb):
        with duckdb.connect(str(kb)) as con:
            con.execute("CREATE TABLE search AS SELECT 42 AS i")
        with sqlrag.connect(kb) as con:
            assert rows(con, "FROM search") == [(42,)]
            assert len(rows(con, "FROM search('late', k := 2)")) == 2

    @pytest.mark.slow
    def test_twice_is_one_database_and_the_first_may_be_closed(self, kb):
        first = sqlrag.connect(kb)
        second = sqlrag.connect(kb)
        first.close()
        del first
        assert rows(second, "SELECT node_id FROM search('battery', k := 1)") == [("battery.md#0",)]
        assert one(second, "SELECT similarity('a', 'a')") == 1
        second.close()
        with sqlrag.connect(kb) as third:  # another database by now
            assert one(third, "SELECT similarity('a', 'a')") == 1

    def test_an_embedder_that_is_given_later_takes_the_place_of_the_earlier_one(self, kb):
        model = Recording()
        with sqlrag.connect(kb) as con, sqlrag.connect(kb, embedder=model) as other:
            con.execute("SELECT embed('for the other')")
            assert model.asked("query") == ["for the other"]
            assert one(other, "SELECT embed('x') = embed('x')")

    def test_a_function_of_the_program_by_that_name_is_not_replaced(self, kb):
        with duckdb.connect(str(kb), read_only=True) as own:
            own.create_function("embed", len, ["VARCHAR"], "BIGINT")
            with pytest.raises(InputError, match="has a function embed already"):
                sqlrag.connect(kb)
            assert one(own, "SELECT embed('abc')") == 3

    def test_threads_that_connect_at_once_share_the_functions(self, kb):
        results = []

        def work():
            with sqlrag.connect(kb) as con:
                results.append(one(con, "SELECT similarity('late', 'late delivery')"))

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [pytest.approx(2**-0.5, abs=1e-7)] * 6


class TestModel:
    def test_another_model_than_the_files_is_refused_at_the_first_use(self, kb):
        def other(texts):
            return [np.random.default_rng(len(text)).normal(size=64) for text in texts]

        with sqlrag.connect(kb, embedder=other) as con:
            assert one(con, "SELECT count(*) FROM sources") == 3
            with pytest.raises(duckdb.Error, match="The file was built with the model 'hashing-64'") as raised:
                con.execute("SELECT embed('x')")
            assert isinstance(clear_error(raised.value), ModelMismatchError)

    @pytest.mark.slow
    def test_a_file_without_a_model_says_so_at_the_first_use(self, tmp_path):
        make_small_store(tmp_path / "given.duckdb")
        with sqlrag.connect(tmp_path / "given.duckdb") as con:
            assert rows(con, "SELECT node_id FROM lexical_query('oven')") == [("notes:c.pdf#0",)]
            for statement in ("SELECT embed('x')", "FROM search('x')", "SELECT similarity('x', 'y')"):
                with pytest.raises(duckdb.Error, match="computed elsewhere, so the file names no model") as raised:
                    con.execute(statement)
                assert isinstance(clear_error(raised.value), ModelUnavailableError)

    def test_a_model_that_fails_is_named_with_its_message_and_asked_again(self, kb):
        class Failing(HashingEmbedder):
            down = False

            def embed(self, texts, *, kind):
                if self.down:
                    raise ConnectionError("the server is down")
                return super().embed(texts, kind=kind)

        model = Failing("hashing-64")
        with sqlrag.connect(kb, embedder=model) as con:
            con.execute("SELECT embed('a')")
            model.down = True
            with pytest.raises(duckdb.Error, match=r"hashing-64.*the server is down") as raised:
                con.execute("SELECT similarity('text ' || i, 'b') FROM range(10) r(i)")
            assert isinstance(clear_error(raised.value), ProviderError)
            model.down = False
            assert one(con, "SELECT count(similarity('text ' || i, 'b')) FROM range(10) r(i)") == 10

    def test_errors_of_statements_stay_as_they_are(self, con):
        with pytest.raises(duckdb.Error) as raised:
            con.execute("SELECT nosuch")
        assert clear_error(raised.value) is raised.value


class TestRegister:
    @pytest.mark.slow
    def test_a_connection_of_the_user_gets_the_macros_with_a_prefix_and_the_functions(self, kb):
        with duckdb.connect() as con:
            con.execute("CREATE TABLE reviews AS FROM (VALUES (1, 'battery dies'), (5, 'grand')) v(stars, body)")
            sqlrag.register(con, kb)
            assert one(con, "SELECT avg(stars) FROM reviews WHERE similarity(body, 'the battery dies') > .5") == 1
            with Store(kb) as store:
                wanted = [(row["node_id"], row["score"]) for row in store.hybrid_query(QUESTION, top_k=3)]
            assert rows(con, f"SELECT node_id, score FROM kb_search('{QUESTION}', k := 3)") == wanted
            search = f"SELECT node_id, score FROM kb_hybrid_query('{QUESTION}', embed('{QUESTION}'), k := 3)"
            assert rows(con, search) == wanted
            assert one(con, "SELECT count(*) FROM kb.sources") == 3
            con.execute("CREATE TABLE written AS SELECT body, embed(body, 'document') AS v FROM reviews")
            with pytest.raises(duckdb.Error, match="read-only"):
                con.execute("DELETE FROM kb.documents")

    @pytest.mark.slow
    def test_twice_changes_nothing(self, kb):
        with duckdb.connect() as con:
            sqlrag.register(con, kb)
            before = rows(con, "SELECT count(*) FROM duckdb_functions()")
            sqlrag.register(con, kb)
            assert rows(con, "SELECT count(*) FROM duckdb_functions()") == before
            assert rows(con, "SELECT node_id FROM kb_search('battery', k := 1)") == [("battery.md#0",)]

    def test_a_transaction_is_refused_and_goes_on(self, kb):
        with duckdb.connect() as con:
            con.execute("CREATE TABLE t (i INTEGER)")
            con.execute("BEGIN")
            con.execute("INSERT INTO t VALUES (1)")
            with pytest.raises(InputError, match="in a transaction"):
                sqlrag.register(con, kb)
            con.execute("COMMIT")
            assert rows(con, "FROM t") == [(1,)]

    @pytest.mark.rest
    def test_files_of_two_models_have_a_name_each_and_the_plain_functions_are_of_the_first(self, kb, tmp_path):
        options = {"embed_model_name": "hashing-32"}
        other = build(tmp_path, "other.duckdb", folder="more", options=options, pump_md="the pump seal leaks")
        with duckdb.connect() as con:
            sqlrag.register(con, kb)
            sqlrag.register(con, other, "manuals")
            assert rows(con, "SELECT node_id FROM kb_search('battery', k := 1)") == [("battery.md#0",)]
            assert rows(con, "SELECT node_id FROM manuals_search('pump', k := 1)") == [("pump.md#0",)]
            types = rows(con, "SELECT typeof(embed('x')), typeof(kb_embed('x')), typeof(manuals_embed('x'))")
            assert types == [("FLOAT[64]", "FLOAT[64]", "FLOAT[32]")]

    @pytest.mark.slow
    def test_the_functions_outlive_the_connection_that_registered(self, kb):
        con = duckdb.connect()
        cursor = con.cursor()
        sqlrag.register(cursor, kb)
        cursor.close()
        del cursor
        assert one(con, "SELECT similarity('a', 'a')") == 1
        sqlrag.register(con, kb)
        assert rows(con, "SELECT node_id FROM kb_search('battery', k := 1)") == [("battery.md#0",)]
        con.close()

    @pytest.mark.parametrize("con", [None, "kb.duckdb", sqlite3], ids=["None", "a path", "a module"])
    def test_what_is_no_connection_is_refused(self, kb, con):
        with pytest.raises(InputError, match="con must be a connection of DuckDB"):
            sqlrag.register(con, kb)

    def test_a_closed_connection_is_refused(self, kb):
        con = duckdb.connect()
        con.close()
        with pytest.raises(InputError, match="con has been closed"):
            sqlrag.register(con, kb)

    @pytest.mark.parametrize("name", ["temp", "", " ", "my_lexical", "kb_exact_vector", "kb_exact", 5])
    def test_names_that_would_give_two_meanings_to_one_macro_are_refused(self, kb, name):
        with duckdb.connect() as con, pytest.raises(InputError):
            sqlrag.register(con, kb, name)

    def test_no_function_of_one_file_is_named_as_a_macro_of_another(self):
        for macro in MACROS:
            for function in (*MACROS, *connection._NAMES):
                if macro.endswith(f"_{function}"):
                    with pytest.raises(InputError):
                        check_name(f"kb_{macro.removesuffix(f'_{function}')}", connection._NAMES)

    @pytest.mark.slow
    def test_another_file_by_the_name_is_refused(self, kb, made):
        with duckdb.connect() as con:
            sqlrag.register(con, kb)
            with pytest.raises(InputError, match="Another file is attached by this name"):
                sqlrag.register(con, made)

    @pytest.mark.slow
    def test_a_file_that_is_attached_by_another_name_is_refused_with_the_way_out(self, kb):
        with duckdb.connect() as con:
            con.execute(f"ATTACH '{kb}' AS mine (READ_ONLY)")
            if duckdb.__version__.startswith("1.3."):  # later ones attach a file twice
                with pytest.raises(InputError, match="by another name"):
                    sqlrag.register(con, kb)
            else:
                sqlrag.register(con, kb)
            sqlrag.register(con, kb, "mine")
            assert rows(con, "SELECT node_id FROM mine_search('battery', k := 1)") == [("battery.md#0",)]

    @pytest.mark.slow
    def test_a_connection_to_the_file_itself_is_registered_by_its_name(self, kb):
        with duckdb.connect(str(kb), read_only=True) as con:
            sqlrag.register(con, kb)
            assert rows(con, "SELECT node_id FROM kb_search('battery', k := 1)") == [("battery.md#0",)]

    def test_a_macro_of_the_user_by_one_of_the_names_is_refused_before_anything_is_attached(self, kb):
        with duckdb.connect() as con:
            con.execute("CREATE MACRO kb_embed(x) AS x")
            with pytest.raises(InputError, match="has a macro kb_embed of its own"):
                sqlrag.register(con, kb)
            assert "kb" not in [name for (name,) in rows(con, "SELECT database_name FROM duckdb_databases()")]

    @pytest.mark.slow
    def test_a_plain_name_that_is_taken_is_left(self, kb):
        with duckdb.connect() as con:
            con.execute("CREATE MACRO embed(x) AS 'mine'")
            sqlrag.register(con, kb)
            assert one(con, "SELECT embed('x')") == "mine"
            assert one(con, "SELECT kb_similarity('a', 'a')") == 1

    def test_a_file_that_this_process_writes_is_refused(self, kb):
        with Store(kb, read_only=False), duckdb.connect() as con, pytest.raises(StoreLockedError, match="for writing"):
            sqlrag.register(con, kb)

    @pytest.mark.slow
    def test_a_strangers_file_is_refused(self, kb):
        with duckdb.connect(str(kb)) as con:
            con.execute("CREATE OR REPLACE MACRO vector_length(v) AS 1.0")
        with duckdb.connect() as con:
            with pytest.raises(NotAStoreError):
                sqlrag.register(con, kb)
            sqlrag.register(con, kb, trust=True)  # with the macros of the package
            assert rows(con, "SELECT node_id FROM kb_search('battery', k := 1)") == [("battery.md#0",)]


SLOW = """
import os, signal, sys, threading, time
import duckdb, sqlrag
from sqlrag.adapters.connection import interruptible
from sqlrag.embedders import HashingEmbedder

class Slow(HashingEmbedder):
    batch_size = 16
    def embed(self, texts, *, kind):
        time.sleep(0.1)
        return super().embed(texts, kind=kind)

path, threads, how = sys.argv[1:]
con = sqlrag.connect(path, embedder=Slow("hashing-64"), verbose=False)
con.execute(f"SET threads = {threads}")
con.execute("CREATE TEMP TABLE t AS SELECT 'text ' || i AS body FROM range(50_000) r(i)")
con.execute("SELECT embed('warm')").fetchall()
statement = lambda: con.execute("SELECT sum(similarity(body, 'x')) FROM t").fetchall()
began = time.monotonic()
try:
    threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        statement() if how == "plain" else interruptible(con, statement)
    except duckdb.Error:
        time.sleep(0.1)  # Python may raise the signal itself a moment after DuckDB's error
        raise
    print("ran to its end")
except BaseException as error:
    print(type(error).__name__, "stopped" if time.monotonic() - began < 5 else "late", flush=True)
print(con.execute("SELECT similarity('a', 'a'), count(*) FROM t").fetchall())
"""


class TestCtrlC:
    @pytest.fixture(autouse=True)
    def raised_by_python(self):
        """In the background of a shell Ctrl-C is ignored, and tests/conftest.py leaves it so."""
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        yield
        signal.signal(signal.SIGINT, before)

    @pytest.mark.slow
    @pytest.mark.parametrize("how", ["plain", "interruptible"])
    @pytest.mark.parametrize("threads", [1, 2])
    def test_a_long_statement_ends_soon_and_the_connection_goes_on(self, kb, threads, how):
        done = subprocess.run(
            [sys.executable, "-c", SLOW, str(kb), str(threads), how],
            capture_output=True, text=True, timeout=100, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert done.returncode == 0, (done.returncode, done.stderr)
        first, second = done.stdout.splitlines()
        assert first.endswith(" stopped"), done.stderr
        assert how == "plain" or first.startswith("KeyboardInterrupt")
        assert second == "[(1.0, 50000)]"

    def test_one_that_came_before_the_statement_does_not_end_it(self, con):
        def interrupted():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)

        with pytest.raises(KeyboardInterrupt):
            interrupted()
        assert one(con, "SELECT similarity('before', 'before')") == 1

    def test_statements_of_plain_sql_are_interrupted_too(self, con):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            interruptible(
                con,
                lambda: con.execute("SELECT count(*) FROM range(1000000) a, range(1000000) b WHERE a.range > b.range"),
            )
        assert time.monotonic() - began < 10
        assert one(con, "SELECT 1") == 1

    def test_a_process_that_was_forked_does_not_answer_for_its_parent(self, con):
        seen = connection.interrupts.seen()
        if (child := os.fork()) == 0:
            signal.signal(signal.SIGINT, lambda *_: os._exit(7))
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert connection.interrupts.seen() == seen


class TestProgress:
    @pytest.mark.slow
    def test_a_terminal_shows_how_many_texts_were_embedded_after_two_seconds(self, kb, monkeypatch, capfd):
        import tqdm.auto

        monkeypatch.setattr(connection, "_BAR_SECONDS", 0.0)
        monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
        assert tqdm.auto
        with sqlrag.connect(kb) as con:
            con.execute("SELECT count(similarity('text ' || i, 'x')) FROM range(3000) r(i)").fetchall()
            assert "embedding" in capfd.readouterr().err
            con.execute("SELECT embed('a question that follows at once')").fetchall()
            assert "embedding" not in capfd.readouterr().err
        with sqlrag.connect(kb, verbose=False) as con:
            con.execute("SELECT count(similarity('more ' || i, 'x')) FROM range(3000) r(i)").fetchall()
        assert "embedding" not in capfd.readouterr().err
