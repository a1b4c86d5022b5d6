"""``sqlrag shell`` and ``sqlrag attach-sql``, with a real DuckDB command line of another version than the library."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import duckdb
import pytest
from typer.testing import CliRunner

from sqlrag import InputError, Store
from sqlrag.cli import app
from sqlrag.cli import shell as shell_module
from sqlrag.cli.shell import _find_program, _first_look, _version_of, split_statements
from sqlrag.engines.duckdb.attach import attach_sql
from sqlrag.engines.duckdb.schema import MACROS
from sqlrag.errors import MissingExtraError
from tests.support.helpers import ROOT, build
from tests.support.stores import BREAD, DUCKS, make_small_store, small_chunks

CLI = _find_program(None)
BEGIN = [sys.executable, "-m", "sqlrag", "shell"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb"}
SEARCHES = [
    "SELECT node_id, score FROM {}lexical_query('duck pond''s', k := 3)",
    "SELECT node_id, score FROM {}lexical_query('pond', tags_any := ['water'], metadata := '{{\"lang\": \"en\"}}')",
    "SELECT node_id, score FROM {}vector_query(" + str(list(BREAD)) + ")",
    "SELECT node_id, score FROM {}exact_vector_query(" + str(list(BREAD)) + ", k := 2)",
    *(
        "SELECT node_id, score, vector_rank, lexical_rank FROM {}hybrid_query('duck bread', "
        f"{list(BREAD)}, fusion := '{fusion}')"
        for fusion in ("adaptive", "rrf", "weighted", "convex")
    ),
    "SELECT node_id, score FROM {}more_like('a.md#1')",
    "SELECT doc_id, text FROM {}source_documents_of(['a.md#0', 'b.md#0'])",
]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """Return two stores whose paths no shell likes; they differ in documents and dimensions."""
    folder = tmp_path_factory.mktemp("two")
    first, second = folder / "it's a kb.duckdb", folder / "-kb.duckdb"
    make_small_store(first)
    with Store.create(second, 16) as store:
        store.upsert([DUCKS], small_chunks()[:2], [(*BREAD, *[0.0] * 8)] * 2)
    return first, second


@pytest.fixture(scope="module")
def session(stores):
    """Return a session that works in its own database and has attached both stores, one of them twice."""
    with duckdb.connect() as con:
        for path, name in zip((*stores, stores[0]), ("kb", 'my "other"', "kb"), strict=True):
            con.execute(attach_sql(path, name))
        con.execute("CREATE TABLE documents (rid INTEGER)")  # which a short name would find
        yield con


def shell(*arguments, stdin=None, **environment):
    return subprocess.run(
        [*BEGIN, *map(str, arguments)], input=stdin, env={**ENVIRONMENT, **environment},
        stdin=subprocess.DEVNULL if stdin is None else None, capture_output=True, encoding="utf-8", timeout=60,
    )  # fmt: skip


def rows_in_cli(*arguments):
    done = subprocess.run([CLI, "-json", *arguments], capture_output=True, encoding="utf-8", timeout=60, check=True)
    return [json.loads(answer) for answer in re.findall(r"^\[.*?\]$", done.stdout, re.MULTILINE | re.DOTALL)]


def rows_in_file(path, search):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(search.format("")).fetchall()


class TestShell:
    @pytest.mark.rest
    def test_the_command_line_is_of_another_version_than_the_library(self, stores):
        done = shell(stores[0], "--command", "SELECT version() AS v, count(*) AS n FROM sources")
        assert "v1." in done.stdout
        assert not duckdb.__version__.startswith("1.5.6")
        assert (done.returncode, done.stderr) == (0, "")

    @pytest.mark.slow
    def test_sql_that_is_piped_in_is_run_and_the_file_is_only_read(self, stores):
        done = shell(stores[0], stdin=".mode csv\nSELECT node_id FROM lexical_query('oven');\nDELETE FROM documents;\n")
        assert done.stdout.split() == ["node_id", "notes:c.pdf#0"]
        assert (done.returncode, "read-only" in done.stderr) == (1, True)

    @pytest.mark.slow
    def test_write_opens_the_file_for_writing(self, tmp_path):
        make_small_store(tmp_path / "kb.duckdb")
        assert shell(tmp_path / "kb.duckdb", "--write", "-c", "DELETE FROM ingest_failures").returncode == 0
        assert rows_in_file(tmp_path / "kb.duckdb", "FROM ingest_failures") == []

    @pytest.mark.parametrize("which", [0, 1], ids=["with a stored question", "without"])
    def test_each_of_the_first_statements_gives_rows(self, stores, which):
        with Store(stores[which]) as store:
            first = _first_look(store)
        answers = rows_in_cli("-readonly", stores[which], "-c", first)
        assert len(answers) == 5
        assert all(answers)
        assert ("FLOAT[8]", "FLOAT[16]")[which] in first

    @pytest.mark.slow
    def test_a_terminal_is_handed_over_and_ctrl_c_ends_the_statement_only(self, stores):
        child, terminal = pty.fork()
        if child == 0:
            os.execve(sys.executable, [*BEGIN, str(stores[0])], ENVIRONMENT)
        try:
            shown = read_until(terminal, "hybrid_query.*D ")
            assert "FROM lexical_query('pond', k := 5);" in shown
            os.write(
                terminal, b"SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range > b.range;\n"
            )
            time.sleep(0.5)
            os.write(terminal, b"\x03")
            read_until(terminal, r"\^C.*D ")
            os.write(terminal, b"SELECT 40 + 2 AS sum;\n")
            read_until(terminal, "int32.*42")
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            os.close(terminal)


def read_until(terminal, pattern):
    """Return what a terminal shows up to a pattern."""
    shown, deadline = "", time.monotonic() + 30
    while not re.search(pattern, shown, re.DOTALL):
        assert time.monotonic() < deadline, shown
        if select.select([terminal], [], [], 1)[0]:
            shown += os.read(terminal, 65536).decode("utf-8", "replace")
    return shown


class TestProgram:
    @staticmethod
    def program(folder, says):
        folder.mkdir(exist_ok=True)
        (folder / "duckdb").write_text(f"#!/bin/sh\necho '{says}'\n")
        (folder / "duckdb").chmod(0o755)
        return str(folder / "duckdb")

    def test_the_users_own_goes_before_that_of_the_package(self, tmp_path, monkeypatch):
        assert CLI.endswith("duckdb_cli/duckdb")
        own = self.program(tmp_path, "v9.0.0")
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
        assert _find_program(None) == own
        assert _find_program(CLI) == CLI
        monkeypatch.setenv("PATH", "")
        assert _find_program(None) == CLI

    def test_without_any_the_error_says_how_to_get_one(self, monkeypatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.setattr(shell_module, "find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"pip install 'sqlrag-duckdb\[shell\]'"):
            _find_program(None)

    @pytest.mark.parametrize(
        ("says", "message"),
        [
            ("v1.2.1 8e52ec4395", "is DuckDB 1.2.1, and the macros of the file need 1.3.2 or newer"),
            ("Python 3.11", "is not the DuckDB command line"),
        ],
    )
    def test_what_cannot_open_the_file_is_refused(self, tmp_path, says, message):
        with pytest.raises(InputError, match=message):
            _version_of(self.program(tmp_path, says))

    def test_what_is_no_program_is_refused(self, tmp_path):
        with pytest.raises(InputError, match="is not an executable"):
            _find_program(str(tmp_path / "none"))


class TestAttachSql:
    def test_another_file_of_the_same_name_is_noticed(self, stores):
        with duckdb.connect() as con:
            con.execute(attach_sql(stores[0], "KB"))
            with pytest.raises(duckdb.Error, match="Another file is attached by this name"):
                con.execute(attach_sql(stores[1], "kb"))

    @pytest.mark.slow
    @pytest.mark.parametrize("search", SEARCHES)
    def test_searches_of_two_files_at_once_are_those_of_each_file_alone(self, stores, session, search):
        assert session.execute(search.format("kb_")).fetchall() == rows_in_file(stores[0], search)
        if "hybrid" not in search and "vector" not in search:  # those vectors are of the first file's dimensions
            second = re.sub(r"\{\}(\w+)", r'"my ""other""_\1"', search).format()
            assert session.execute(second).fetchall() == rows_in_file(stores[1], search)

    @pytest.mark.rest
    def test_the_command_line_reads_it_and_gives_the_same_rows(self, stores, tmp_path):
        script = tmp_path / "attach.sql"
        printed = [
            CliRunner().invoke(app, ["attach-sql", str(path), "--as", name])
            for path, name in zip(stores, ("kb", "b"), strict=True)
        ]
        script.write_text("".join(result.stdout for result in printed), encoding="utf-8")
        answers = rows_in_cli("-init", script, "-c", ";".join(search.format("kb_") for search in SEARCHES))
        assert [[tuple(row.values()) for row in rows] for rows in answers] == [
            rows_in_file(stores[0], search) for search in SEARCHES
        ]

    def test_views_and_bm25_scores_work_beside_it(self, stores, session):
        scores = "SELECT node_id, {}match_bm25(node_id, 'bread') FROM {}documents ORDER BY ALL"
        found = session.execute(scores.format("kb_", "kb.")).fetchall()
        assert found == rows_in_file(stores[0], scores.format("fts_main_documents.", ""))
        assert session.execute("SELECT count(*) FROM kb.chunks").fetchall() == [(4,)]

    def test_every_macro_is_there_and_names_nothing_without_its_catalog(self, stores):
        sql = attach_sql(stores[0], "kb")
        assert re.findall(r'MACRO "kb_(\w+)"', sql) == list(MACROS)
        code = re.sub(r"--.*|'(?:[^']|'')*'", "", sql)
        assert not re.search(r"(?<![\".])fts_main_documents|(?:FROM|JOIN) (documents|embedding_metadata)\b", code)

    @pytest.mark.parametrize("name", ["temp", "Main", "memory", "", " ", "a\nb", "kb_exact"])
    def test_names_that_cannot_stand(self, stores, name):
        with pytest.raises(InputError, match="attach"):
            attach_sql(stores[0], name)


def prompt(*arguments, **more):
    return shell(*arguments, "--embed", **more)


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), late_md="late delivery", battery_md="battery dies quickly")


class TestPrompt:
    """The prompt of sqlrag's own, whose SQL can embed."""

    @pytest.mark.rest
    def test_a_statement_of_the_command_line_can_search_by_a_question(self, kb):
        done = prompt(
            kb, "--command", "SELECT node_id FROM search('what dies', k := 1); SELECT similarity('a', 'a') AS s"
        )
        assert "battery.md#0" in done.stdout
        assert re.search(r"s\b.*1\.0", done.stdout, re.DOTALL)
        assert (done.returncode, done.stderr) == (0, "")

    def test_it_is_there_where_no_duckdb_command_line_is(self, kb, monkeypatch, capsys):
        monkeypatch.setattr(
            shell_module, "_find_program", lambda cli: (_ for _ in ()).throw(MissingExtraError("x", "shell"))
        )
        done = CliRunner().invoke(app, ["shell", str(kb), "-c", "SELECT node_id FROM search('late', k := 1)"])
        assert done.exit_code == 0, done.output
        assert "late.md#0" in done.stdout + capsys.readouterr().out

    @pytest.mark.rest
    def test_sql_that_is_piped_in_goes_on_after_an_error_and_ends_with_1(self, kb):
        done = prompt(
            kb, stdin="SELECT 'a;b' AS x; -- a; comment\nSELECT nosuch;\nSELECT\n 40 +\n 2 AS sum;\nSELECT 7 AS last"
        )
        assert [text in done.stdout for text in ("a;b", "42", "last")] == [True] * 3
        assert (done.returncode, done.stderr.count("error:"), "nosuch" in done.stderr) == (1, 1, True)

    @pytest.mark.rest
    def test_commands_list_tables_show_help_and_end(self, kb):
        done = prompt(kb, stdin=".tables\n.help\n.nosuch\n.exit\nSELECT 'not reached';\n")
        for name in ("source_documents", "corpus_stats", "query_embeddings"):
            assert name in done.stdout
        assert ".tables lists tables and views" in done.stdout
        assert "There is no command .nosuch" in done.stderr
        assert "not reached" not in done.stdout

    @pytest.mark.rest
    def test_it_reads_unless_writing_is_asked_for(self, kb, tmp_path):
        assert "read-only" in prompt(kb, "-c", "CREATE TABLE t (i INTEGER)").stderr
        copy = tmp_path / "copy.duckdb"
        copy.write_bytes(kb.read_bytes())
        assert prompt(copy, "--write", "-c", "CREATE TABLE t AS SELECT 5 AS i").returncode == 0
        assert rows_in_file(copy, "FROM t") == [(5,)]

    @pytest.mark.rest
    def test_errors_of_the_functions_have_the_words_of_sqlrag(self, stores):
        done = prompt(stores[0], "-c", "SELECT embed('x')")
        assert done.stderr.startswith("error: The vectors of ")
        assert "UDF" not in done.stderr
        assert done.returncode == 1

    @pytest.mark.rest
    def test_a_plan_is_printed_as_lines(self, kb):
        assert "\\n" not in prompt(kb, "-c", "EXPLAIN SELECT 1").stdout

    def test_a_command_line_that_is_named_and_embed_exclude_each_other(self, kb):
        done = CliRunner().invoke(app, ["shell", str(kb), "--embed", "--cli", str(CLI)])
        assert (done.exit_code, "exclude each other" in done.stderr) == (2, True)

    def test_a_file_that_is_none_is_refused(self, tmp_path):
        done = CliRunner().invoke(app, ["shell", str(tmp_path / "none.duckdb"), "--embed", "-c", "SELECT 1"])
        assert "There is no file" in done.stderr

    @pytest.mark.rest
    def test_a_terminal_has_several_lines_history_and_ctrl_c(self, kb, tmp_path):
        child, terminal = pty.fork()
        if child == 0:
            os.execve(sys.executable, [*BEGIN, str(kb), "--embed"], {**ENVIRONMENT, "HOME": str(tmp_path)})
        try:
            read_until(terminal, "sql> ")
            os.write(terminal, b"SELECT 40 +\n")
            read_until(terminal, r"\.\.\.> ")
            os.write(terminal, b"2 AS sum;\n")
            read_until(terminal, "42.*sql> ")
            os.write(
                terminal, b"SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range > b.range;\n"
            )
            time.sleep(0.5)
            os.write(terminal, b"\x03")
            read_until(terminal, r"The statement was ended\..*sql> ")
            os.write(terminal, b"SELECT 'unfinished\n")
            read_until(terminal, r"\.\.\.> ")
            time.sleep(1)  # readline notices no signal that comes between its prompt and its waiting
            os.write(terminal, b"\x03")
            read_until(terminal, "sql> ")
            os.write(terminal, b"SELECT node_id FROM search('what dies', k := 1);\n")
            read_until(terminal, "battery.md#0.*sql> ")
            os.write(terminal, b".exit\n")
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        except BaseException:
            os.kill(child, signal.SIGKILL)
            raise
        finally:
            os.close(terminal)
        history = tmp_path / ".sqlrag_history"
        assert "search('what dies'" in history.read_text()
        assert history.stat().st_mode & 0o777 == 0o600

    @pytest.mark.parametrize(
        ("text", "done", "rest"),
        [
            ("SELECT 1; SELECT 2;", ["SELECT 1", "SELECT 2"], ""),
            (
                "SELECT ';' || \";\" -- ;\n, $$;$$, $a$;$a$ /* ; */; x",
                ["SELECT ';' || \";\" -- ;\n, $$;$$, $a$;$a$ /* ; */"],
                " x",
            ),
            ("SELECT 'it''s; ", [], "SELECT 'it''s; "),
            ("SELECT /* ; ", [], "SELECT /* ; "),
            ("SELECT $$ ; ", [], "SELECT $$ ; "),
            ("SELECT $1, a - b / c;", ["SELECT $1, a - b / c"], ""),
            (";;", [], ""),
        ],
    )
    def test_statements_end_at_semicolons_outside_of_texts_and_comments(self, text, done, rest):
        assert split_statements(text) == (done, rest)
