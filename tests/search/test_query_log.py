"""The query log: what it holds, and that it never stands in the way of a search."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import duckdb
import pytest

from sqlrag import InputError, Settings, Store, lexical_query, telemetry
from sqlrag.engines.duckdb.blocks import write_journal
from sqlrag.search import query_log
from sqlrag.settings import QUERY_LOG, WAIT_SECONDS
from tests.support.helpers import ROOT, build, ids, python
from tests.support.stores import make_small_store


@pytest.fixture(autouse=True)
def _no_log_of_the_environment(monkeypatch):
    monkeypatch.delenv(QUERY_LOG, raising=False)
    yield
    query_log._logs.clear()


@pytest.fixture
def small(tmp_path):
    make_small_store(tmp_path / "kb.duckdb")
    return tmp_path / "kb.duckdb"


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.duckdb"


def rows(log, sql):
    with duckdb.connect(str(log), read_only=True) as con:
        return con.execute(sql).fetchall()


class TestRows:
    @pytest.mark.alone
    def test_a_row_for_each_query(self, small, log):
        with Store(small, settings=Settings(query_log=log)) as store:
            answers = [
                store.hybrid_query("duck", query_vector=[1] * 8, top_k=2),
                store.lexical_query("oven pond", top_k=3),
                store.vector_query(query_vector=[1] * 8, top_k=1),
                store.hybrid_query("pond"),
            ]
        found = rows(
            log,
            "SELECT mode, query_text, top_k, results, score_type, best_score, vector_candidates, lexical_candidates, "
            "store, error FROM queries ORDER BY asked_at",
        )
        texts = ("duck", "oven pond", "", "pond")
        # "duck" is in two chunks, "oven" or "pond" in three; without a model only the lexical leg answers
        legs = ((4, 2), (0, 3), (1, 0), (0, 2))
        for row, answer, text, leg in zip(found, answers, texts, legs, strict=True):
            mode = {"": "vector", "oven pond": "lexical"}.get(text, "hybrid")
            top_k = {"duck": 2, "oven pond": 3, "": 1, "pond": 5}[text]
            best = answer[0]
            assert row == (mode, text, top_k, len(answer), best["score_type"], best["score"], *leg, str(small), None)
        notices, seconds, total = rows(
            log, "SELECT notices, json_keys(seconds), total_seconds FROM queries ORDER BY asked_at"
        )[3]
        assert notices == answers[3].notices != []
        assert set(seconds) == answers[3].timings.keys()
        assert total == pytest.approx(answers[3].timings["total"], abs=0.05)
        assert rows(log, "SELECT count(DISTINCT query_id) FROM queries") == [(4,)]

    def test_fault_S1_its_file_has_a_journal_while_it_is_written_in_place(self, small, log, monkeypatch):
        names = []

        def write(path, file):
            names.append(path.name)
            return write_journal(path, file)

        monkeypatch.setattr("sqlrag.engines.duckdb.database.write_journal", write)
        for word in ("duck", "pond"):
            with Store(small, settings=Settings(query_log=log)) as store:
                store.lexical_query(word)
        assert [name for name in names if not name.startswith(".")] == ["log.duckdb"]  # the first is made beside it
        assert rows(log, "SELECT query_text FROM queries ORDER BY asked_at") == [("duck",), ("pond",)]
        assert sorted(path.name for path in log.parent.iterdir()) == ["kb.duckdb", "log.duckdb"]

    def test_fault_S1_one_that_cannot_be_made_leaves_nothing(self, small, log, monkeypatch):
        def full(*_):
            raise duckdb.IOException("Could not write file: No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(query_log, "confine", full)
            with Store(small, settings=Settings(query_log=log)) as store:
                store.lexical_query("duck")
                assert not log.exists()
        with Store(small, settings=Settings(query_log=log)) as store:
            store.lexical_query("pond")
        assert rows(log, "SELECT query_text FROM queries ORDER BY asked_at") == [("duck",), ("pond",)]
        assert sorted(path.name for path in log.parent.iterdir()) == ["kb.duckdb", "log.duckdb"]

    def test_fault_S26_a_row_has_the_id_of_its_request_and_all_scores(self, small, log):
        with Store(small, settings=Settings(query_log=log)) as store:
            with telemetry.request("of-a-client"):
                answers = [store.lexical_query("duck"), store.lexical_query("pond", top_k=1)]
                with pytest.raises(InputError):
                    store.hybrid_query(" ")
            answers.append(store.lexical_query("zebra"))
        found = rows(log, "SELECT request_id, top_k, scores, results FROM queries ORDER BY asked_at")
        given = [[row["score"] for row in answer] for answer in answers]
        assert [row[2] for row in found] == [given[0], given[1], [], []]
        assert [row[:2] for row in found[:3]] == [("of-a-client", 5), ("of-a-client", 1), ("of-a-client", 5)]
        assert found[3][0] == answers[2].request_id != answers[1].request_id == "of-a-client"
        assert rows(log, "SELECT count(DISTINCT query_id) FROM queries") == [(4,)]  # it stays the key

    def test_fault_S26_a_log_of_before_gets_the_columns(self, small, log):
        with Store(small, settings=Settings(query_log=log)) as store:
            store.lexical_query("duck")
        with duckdb.connect(str(log)) as con:
            names = [row[0] for row in con.execute("DESCRIBE queries").fetchall()]
            older = ", ".join(name for name in names if name not in ("request_id", "scores"))
            con.execute(f"CREATE TABLE old AS SELECT {older} FROM queries; DROP TABLE queries")
            con.execute("ALTER TABLE old RENAME TO queries")
        with Store(small, settings=Settings(query_log=log)) as store:
            store.lexical_query("pond")
        found = rows(log, "SELECT query_text, request_id IS NULL, len(scores) FROM queries ORDER BY asked_at")
        assert found == [("duck", True, None), ("pond", False, 2)]
        assert rows(log, "SELECT mode, queries FROM query_latencies") == [("lexical", 2)]

    def test_the_views(self, small, log):
        with Store(small, settings=Settings(query_log=log)) as store:
            for text in ("duck", "zebra", "zebra", "giraffe", "duck"):
                store.lexical_query(text)
            with pytest.raises(InputError):
                store.hybrid_query(" ")
        with duckdb.connect(str(log)) as con:  # times that can be reckoned by hand
            con.execute(
                "UPDATE queries SET total_seconds = rowid / 100, asked_at = '2024-01-01', "
                "seconds = json_object('lexical', rowid / 100)"
            )
        # 0, 10, 20, 30 and 40 ms: the median is the third, 95 % lie 0.8 of the way from the fourth to the fifth
        assert rows(log, "FROM query_latencies") == [("lexical", 5, 20.0, 38.0, 40.0)]
        assert rows(log, "FROM query_stages") == [("lexical", "lexical", 5, 20.0, 38.0, 0.1)]
        assert rows(log, "FROM query_days") == [(date(2024, 1, 1), 6, 4, 3, 1, 20.0)]
        assert rows(log, "SELECT query_text, queries, mean_results FROM frequent_queries") == [
            ("duck", 2, 2), ("zebra", 2, 0), (" ", 1, None), ("giraffe", 1, 0)
        ]  # fmt: skip
        assert rows(log, "SELECT query_text, mode, queries, notices FROM queries_without_results") == [
            ("zebra", "lexical", 2, ["No chunk holds any of the words."]),
            ("giraffe", "lexical", 1, ["No chunk holds any of the words."]),
        ]
        ((mode, text, error),) = rows(log, "SELECT mode, query_text, error FROM failed_queries")
        assert (mode, text) == ("hybrid", " ")
        assert error.startswith("InputError: The query is blank")

    def test_everything_has_a_comment(self, small, log):
        with Store(small, settings=Settings(query_log=log)) as store:
            store.lexical_query("duck")
        comments = (
            "SELECT table_name, comment FROM duckdb_tables() WHERE NOT internal UNION ALL SELECT view_name, comment "
            "FROM duckdb_views() WHERE NOT internal UNION ALL SELECT column_name, comment FROM duckdb_columns() "
            "WHERE NOT internal AND table_name = 'queries'"
        )
        found = rows(log, comments)
        assert len(found) >= 19
        assert [name for name, comment in found if not (comment or "").endswith(".")] == []

    def test_lone_surrogates_are_no_obstacle(self, small, log):
        with Store(small, settings=Settings(query_log=log)) as store:
            store.lexical_query("duck \ud835")
        assert rows(log, "SELECT query_text FROM queries") == [("duck ?",)]


class TestSettings:
    def test_the_environment_names_the_log(self, small, log, monkeypatch):
        lexical_query("duck", small)
        assert not log.exists()
        monkeypatch.setenv(QUERY_LOG, str(log))
        lexical_query("duck", small)
        assert rows(log, "SELECT query_text FROM queries") == [("duck",)]
        with Store(small, settings=Settings()) as store:  # what is given goes before the environment
            store.lexical_query("pond")
        assert rows(log, "SELECT count(*) FROM queries") == [(1,)]

    @pytest.mark.slow
    def test_the_command_line_logs_as_well(self, small, log):
        arguments = [sys.executable, "-m", "sqlrag", "lexical-query", "duck", "--db", small]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), QUERY_LOG: str(log)}
        subprocess.run(arguments, env=environment, check=True, capture_output=True)
        assert rows(log, "SELECT query_text, results FROM queries") == [("duck", 2)]

    @pytest.mark.parametrize("seconds", ["soon", "-1", "nan", "inf"])
    def test_a_wait_that_is_none(self, small, monkeypatch, seconds):
        monkeypatch.setenv(WAIT_SECONDS, seconds)
        with pytest.raises(InputError, match=r"wait_seconds|SQLRAG_WAIT_SECONDS"):
            Store(small)
        with pytest.raises(InputError, match="wait_seconds"):
            Settings(wait_seconds=seconds)

    def test_defaults(self):
        assert Settings.from_environment() == Settings() == Settings(None, 2.0)


class TestTrouble:
    @pytest.mark.parametrize("what", ["folder", "text", "locked", "other"])
    def test_a_log_that_cannot_be_written_is_a_warning_once(self, small, log, what, caplog, monkeypatch):
        monkeypatch.setattr(query_log, "_BUFFERED_ROWS", 2)
        holder = None
        if what == "folder":
            log.mkdir()
        elif what == "text":
            log.write_text("my notes")
        elif what == "other":
            with duckdb.connect(str(log)) as con:
                con.execute("CREATE TABLE queries (i INTEGER)")
        else:
            duckdb.connect(str(log)).close()
            code = "import sys, duckdb\ncon = duckdb.connect(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()"
            holder = subprocess.Popen([sys.executable, "-c", code, log], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            holder.stdout.readline()
        with caplog.at_level(logging.WARNING, "sqlrag"):
            for _ in range(2):
                with Store(small, settings=Settings(query_log=log)) as store:
                    for _ in range(5):
                        assert ids(store.lexical_query("duck")) == ["a.md#1", "a.md#0"]
        (record,) = [record for record in caplog.records if record.name == "sqlrag.query"]
        assert str(log) in record.getMessage()
        if holder is not None:  # what waited is written as soon as it can be
            holder.communicate(b"")
            with Store(small, settings=Settings(query_log=log)) as store:
                store.lexical_query("pond")
            assert rows(log, "SELECT count(*) FROM queries") == [(11,)]
        elif what == "text":
            assert log.read_text() == "my notes"

    def test_the_store_itself_is_no_log(self, small):
        os.link(small, small.with_name("link.duckdb"))
        os.mkfifo(small.with_name("fifo"))
        wrong = {small.name: "is the store", "link.duckdb": "is the store", "fifo": "neither a file"}
        for name, why in wrong.items():
            with pytest.raises(InputError, match=why):
                Store(small, settings=Settings(query_log=os.path.relpath(small.with_name(name))))
        with Store(small) as store:
            assert store.lexical_query("duck")

    @pytest.mark.slow
    def test_the_command_line_says_that_it_cannot_log(self, small, tmp_path):
        (tmp_path / "folder").mkdir()
        done = subprocess.run(
            [sys.executable, "-m", "sqlrag", "lexical-query", "duck", "--db", str(small)],
            env={**os.environ, "PYTHONPATH": str(ROOT), QUERY_LOG: str(tmp_path / "folder")},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("cannot be written; queries are answered all the same") == 1

    def test_only_so_many_rows_wait(self, small, log, monkeypatch):
        monkeypatch.setattr(query_log, "_MOST_ROWS", 3)
        log.mkdir()
        with Store(small, settings=Settings(query_log=log)) as store:
            for n in range(9):
                store.lexical_query(f"duck{n}")
        log.rmdir()
        query_log.query_log(log, small).flush()
        assert rows(log, "SELECT query_text FROM queries ORDER BY asked_at") == [("duck6",), ("duck7",), ("duck8",)]

    @pytest.mark.slow
    def test_many_threads_lose_no_row(self, tmp_path, log, monkeypatch):
        monkeypatch.setattr(query_log, "_BUFFERED_ROWS", 7)
        path = build(tmp_path, a_md="alpha")
        with Store(path, settings=Settings(query_log=log)) as store, ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: store.lexical_query(f"alpha{n}"), range(80)))
        assert rows(log, "SELECT count(DISTINCT query_text) FROM queries") == [(80,)]

    @pytest.mark.slow
    def test_several_processes_write_to_one_log(self, small, log):
        code = (
            "import sys, sqlrag\nfrom sqlrag.search import query_log\n"
            "query_log._SECONDS_AT_EXIT = 100\n"  # a busy machine may need more than 5 seconds for the others
            "with sqlrag.Store(sys.argv[1]) as store:\n"
            "    for n in range(20): store.lexical_query(f'duck{sys.argv[2]}{n}')"
        )
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(lambda n: python(code, small, n, **{QUERY_LOG: str(log)}), range(3)))
        assert rows(log, "SELECT count(DISTINCT query_text) FROM queries") == [(60,)]

    @pytest.mark.slow
    def test_the_rows_of_a_store_that_was_never_closed_are_written(self, small, log):
        code = "import sys, sqlrag\nsqlrag.Store(sys.argv[1]).lexical_query('duck')"
        python(code, small, **{QUERY_LOG: str(log)})
        assert rows(log, "SELECT query_text FROM queries") == [("duck",)]
