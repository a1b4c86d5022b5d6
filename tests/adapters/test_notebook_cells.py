"""``%load_ext sqlrag``: cells of SQL and of questions in IPython, beside JupySQL, and the same in marimo."""

from __future__ import annotations

import builtins
import os
import re
import shutil
import subprocess
import sys
from datetime import date, datetime, timedelta
from pathlib import Path

import duckdb
import nbformat
import pyarrow as pa
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

import sqlrag
from sqlrag import InputError, ModelUnavailableError, NotFoundError, StoreLockedError
from tests.support.helpers import ROOT, build
from tests.support.stores import make_small_store

IPython = pytest.importorskip("IPython", reason="needs IPython, which the notebook extra brings")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    late = "---\nagent: O'Neil\nyear: 2024\ntags: [sql, it's]\n---\n# Late\n\nlate delivery"
    return build(tmp_path_factory.mktemp("kb"), late_md=late, battery_md="battery dies quickly")


@pytest.fixture
def kb(made, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copy(made, tmp_path / "kb.duckdb"))


@pytest.fixture
def shell(kb, monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell

    monkeypatch.delattr(builtins, "_", raising=False)  # a doctest leaves it, and then a shell has no last result
    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    yield shell
    InteractiveShell.clear_instance()


def run(shell, *cells):
    """Run cells and return what the last one returns, or raise what one of them raised."""
    for cell in cells:
        done = shell.run_cell(cell)
        done.raise_error()
    return done.result


@pytest.mark.slow
def test_a_notebook_shows_a_report_as_a_terminal_does(tmp_path):
    from IPython.core.formatters import DisplayFormatter

    kb = build(tmp_path, a_md="mango")
    for report in (sqlrag.update_embeddings(tmp_path / "docs", kb), sqlrag.delete_documents(kb, doc_ids=["a.md"])):
        assert DisplayFormatter().format(report) == ({"text/plain": str(report)}, {})


class TestIPython:
    @pytest.mark.slow
    def test_a_cell_of_sql_and_a_question_give_data_frames(self, shell, kb):
        con = run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb")
        frame = run(shell, "%%sql\nSELECT node_id, similarity(text, 'battery') AS s FROM documents ORDER BY ALL")
        assert list(frame.columns) == ["node_id", "s"]
        assert frame["node_id"].tolist() == ["battery.md#0", "late.md#0"]
        question = run(shell, "%search battery")
        assert question.equals(run(shell, "%%search\nbattery"))
        assert question["node_id"].tolist()[0] == "battery.md#0"
        assert len(run(shell, "%%search k := 1, fusion := 'rrf'\nbattery's \"quick\" death")) == 1
        assert run(shell, "n = %sql SELECT count(*) AS n FROM documents", "n").loc[0, "n"] == 2
        assert run(shell, "%sqlrag") is con
        con.close()

    def test_frames_and_variables_of_the_notebook_are_tables(self, shell):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", "import pyarrow as pa")
        run(shell, "reviews = pa.table({'stars': [1, 5], 'body': ['the battery dies', 'grand']})")
        frame = run(shell, "%%sql\nSELECT avg(stars) AS a FROM reviews WHERE similarity(body, 'battery') > .5")
        assert frame.loc[0, "a"] == 1
        run(shell, "%%sql\nCREATE TEMP TABLE t AS SELECT 1 AS i;\nINSERT INTO t VALUES (2)")
        assert run(shell, "%%sql\nFROM t ORDER BY i")["i"].tolist() == [1, 2]
        assert run(shell, "%%sql\nFROM t; SELECT count(*) AS n FROM t").loc[0, "n"] == 2
        assert run(shell, "%sql SELECT 7 AS n").loc[0, "n"] == 7

    def test_a_connection_of_the_notebook_is_used(self, shell):
        run(shell, "%load_ext sqlrag", "import sqlrag", "con = sqlrag.connect('kb.duckdb', verbose=False)")
        assert run(shell, "%sqlrag con") is shell.user_ns["con"]
        assert len(run(shell, "%search battery")) == 2

    def test_another_file_takes_its_place_and_the_first_is_closed(self, shell, kb, made):
        first = run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb")
        run(shell, f"%sqlrag '{made}'")
        with pytest.raises(duckdb.ConnectionException):
            first.execute("SELECT 1")
        duckdb.connect(str(kb)).close()

    @pytest.mark.slow
    def test_a_file_that_is_not_there_leaves_the_first_open(self, shell):
        first = run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb")
        with pytest.raises(NotFoundError, match=r"There is no file .*nosuch\.duckdb"):
            run(shell, "%sqlrag nosuch.duckdb")
        assert run(shell, "%sqlrag") is first
        assert first.execute("SELECT 1").fetchall() == [(1,)]
        first.close()

    @pytest.mark.parametrize("cell", ["%search late", "%%sql\nSELECT 1", "%sqlrag"])
    def test_without_a_file_the_error_says_how_to_name_one(self, shell, cell):
        with pytest.raises(InputError, match=r"%sqlrag kb\.duckdb"):
            run(shell, "%load_ext sqlrag", cell)

    @pytest.mark.rest
    def test_functions_that_write_say_how_to_close_it(self, shell):
        frame = pa.table({"id": [1], "body": ["a pond"]})
        options = {"key": "id", "text": "body", "progress": "off"}
        run(shell, "%load_ext sqlrag", "con = %sqlrag kb.duckdb", "%search late")
        for write in (
            lambda: sqlrag.index_rows(frame, "kb.duckdb", collection="t", **options),
            lambda: sqlrag.delete_documents("kb.duckdb", doc_ids=["late.md"]),
            lambda: sqlrag.compact("kb.duckdb"),
        ):
            with pytest.raises(StoreLockedError, match=r"or %sqlrag in this process\. .*%sqlrag --close"):
                write()
            assert len(run(shell, "%search late")) == 2
        assert run(shell, "%sqlrag --close") is None
        assert sqlrag.index_rows(frame, "kb.duckdb", collection="t", **options).added == 1
        sqlrag.compact("kb.duckdb")
        for cell in ("%search late", "%%search\nlate", "%%sql\nSELECT 1", "%sqlrag", "%sqlrag --close"):
            with pytest.raises(InputError, match=r"No file is open\. Name one: %sqlrag kb\.duckdb$"):
                run(shell, cell)
        run(shell, "con = %sqlrag kb.duckdb")
        assert len(run(shell, "%search late")) == 3

    @pytest.mark.rest
    def test_a_question_prints_what_python_notes(self, shell, kb, capsys):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb")
        for options, told in {
            "k := 2": "Note: No chunk holds any of the words",
            "K := 2, COLLECTION := ['defualt']": "Note: .* the collection 'defualt'; did you mean 'default'",
            "k := NULL": r"^Note: No chunk holds any of the words(?s:(?!.*must be))",
            "k := 2, collection := ['defualt']": "Note: .* the collection 'defualt'; did you mean 'default'",
            """metadata := '{"file_name": {"$gte": 3}}'""": "Note: .* holds text such as 'battery.md'; 3 is none.",
            """metadata := '{"yaer": 3}'""": "Note: .* No chunk has the metadata field 'yaer'",
        }.items():
            run(shell, f"%%search {options}\nzebra quantum")
            assert re.search(told, capsys.readouterr().out), options
        run(shell, "%search late delivery")
        assert "Note" not in capsys.readouterr().out
        run(shell, "%sqlrag --close", "from sqlrag import connect", "con = connect('kb.duckdb', read_only=False)")
        run(shell, "%sqlrag con", "%search zebra quantum")
        assert "Note: No chunk holds any of the words" in capsys.readouterr().out
        run(shell, "%sqlrag --close")

    @pytest.mark.parametrize(
        "line", ["k := 1, collection := ['x'] late", "K := 1 late", " top_k:=3 late", "late metadata := '{}'"]
    )
    def test_options_in_one_line_with_the_question_are_refused(self, shell, line):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb")
        with pytest.raises(InputError, match="in the first line of a cell, the question below: %%search k := 5"):
            run(shell, f"%search {line}")
        run(shell, "%sqlrag --close")

    @pytest.mark.parametrize("options", ["k=5", "k := 5 pool := 9", "k := 'x'", "collection := 'a'", "--k 5"])
    def test_wrong_options_of_a_cell_are_named_with_those_that_are(self, shell, options):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb")
        message = (
            rf"%%search cannot take {re.escape(options)}: .*such as k := 5.*There are: .*collection, .*k, .*tags_any"
        )
        with pytest.raises(InputError, match=message) as caught:
            run(shell, f"%%search {options}\nlate")
        assert "Candidate macros" not in str(caught.value)
        run(shell, "%sqlrag --close")

    @pytest.mark.slow
    def test_options_that_there_are_not_and_metadata_that_is_no_text(self, shell):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", "n = 4")
        for options, told in {
            "top_k := 5": "%%search has no option 'top_k'; did you mean 'k'? There are: alpha, b, ",
            "K := 5, colection := ['a']": "%%search has no option 'colection'; did you mean 'collection'? There are: ",
            "3": "Options of %%search have names: k := 3. There are: alpha, b, ",
            "$n": "Options of %%search have names: k := 4. There are: alpha, b, ",
            "$n, alpha := .5": "Options of %%search have names: k := $n, alpha := .5. There are: alpha, b, ",
            "zebra := 1": "%%search has no option 'zebra'. There are: alpha, b, ",
            "metadata := {'score': {'$gte': 4}}": """metadata := '{"score":{"$gte":4}}'""",
            """metadata := {"it's": 4.5}""": """metadata := '{"it''s":4.5}'""",
            """k := 3, metadata := {"lang": "en"}""": """metadata := '{"year": {"$gte": 2024}}'""",
        }.items():
            with pytest.raises(InputError) as caught:
                run(shell, f"%%search {options}\nlate")
            assert told in str(caught.value), options
            assert "Error" not in str(caught.value)
        run(shell, "%sqlrag --close")

    @pytest.mark.slow
    def test_a_question_has_the_variables_of_the_notebook(self, shell):
        run(shell, "%load_ext sqlrag", "con = %sqlrag kb.duckdb", "q = 'battery'\nd = {'a': 'late'}\nn = 1")
        con = shell.user_ns["con"]
        found = con.execute("FROM search('battery', k := 1)").df()
        assert found.loc[0, "node_id"] == "battery.md#0"
        for question in ("$q", "{q}", "{d['a'] and q.lower()}"):
            assert run(shell, f"%%search k := $n\n{question}").equals(found)
        con.execute("CREATE OR REPLACE TEMP MACRO search(query_text, k := 10) AS TABLE SELECT query_text AS asked")
        for question, expanded in {
            "$q isn't {q}. Or $q.": "battery isn't battery. Or battery.",
            "{d['a']} {q.upper()} {len(q)}": "late BATTERY 7",
            "{{q}} $$q {{nosuch}} $$nosuch": "{q} $q {nosuch} $nosuch",
            "{id} $list $5 {nosuch} {'a': 1} {q": "{id} $list $5 {nosuch} {'a': 1} {q",
        }.items():
            assert run(shell, f"%%search k := $n\n{question}").loc[0, "asked"] == expanded
            assert run(shell, f"%search {question}").loc[0, "asked"] == expanded
        run(shell, "def f(here):\n    return get_ipython().run_line_magic('search', '$here')")
        assert run(shell, "f('local')").loc[0, "asked"] == "local"
        run(shell, "%sqlrag --close")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("option", "value", "found"),
        [
            ("metadata := $v", """json.dumps({"agent": "O'Neil"})""", 1),
            ("metadata := to_json({'agent': $v})", '''"O'Neil"''', 1),
            ("metadata := to_json($v)", """{"agent": "O'Neil"}""", 1),
            ("metadata := to_json({'agent': $v.agent})", """{"agent": "O'Neil"}""", 1),
            ("metadata := $v", """{"agent": "O'Neil", "year": {"$gt": 2023}}""", 1),
            ("k := 2, METADATA := $v, fusion := 'rrf'", "{'agent': 'nobody'}", 0),
            ("metadata := $v", "None", 2),
            ("tags_any := $v", """["no", "it's"]""", 1),
            ("tags_any := $v", """("no", "it's")""", 1),
            ("tags_any := $v", """np.array(["no", "it's"])""", 1),
            ("tags_any := $v", """pd.Series(["no", "it's"])""", 1),
            ("tags_any := $v", """{"no", "it's"}""", 1),
            ("k := $v[1]", "[np.int64(1)]", 1),
            ("metadata := to_json({'year': {'$in': $v}})", "{np.int64(2024)}", 1),
            ("k := NULL, tags_any := $v", "None", 2),
            ("tags_all := [$v, 'sql']", '''"it's"''', 1),
            ("tags_any := $v", "[]", 0),
            ("k := $v", "1", 1),
            ("k := $v", "np.int64(1)", 1),
            ("k := $v, alpha := .5", "2", 2),
            ("alpha := $v", "0.25", 2),
            ("fusion := $v", "'rrf'", 2),
        ],
    )
    def test_options_have_the_variables_of_the_notebook_as_sql_has(self, shell, option, value, found):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", "import json, numpy as np, pandas as pd", f"v = {value}")
        frame = run(shell, f"%%search {option}\nlate delivery")
        assert len(frame) == found
        assert frame.equals(run(shell, f"%%sql\nFROM search('late delivery', {option})"))
        run(shell, "%sqlrag --close")

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("option", "value", "found"),
        [
            ("metadata := $v", """{"agent": "O'Neil", "year": {"$gt": 2023, "$lt": 2025}}""", 1),
            ("k := 1, metadata := $v , fusion := 'rrf'", "{'agent': 'nobody'}", 0),
            ("metadata := $v", "{}", 2),
            ("metadata := '$v'", """json.dumps({"agent": "O'Neil"})""", 1),
            ('metadata := \'{"agent": "$v"}\'', '''"O'Neil"''', 1),
            ("tags_any := ['$v', 'no']", '''"it's"''', 1),
            ("fusion := '$v', k := {v and 1}", "'rrf'", 1),
            ("tags_any := ['{v['a']}'], k := $gt", "{'a': 'sql'}", 1),
            ("$v", "'k := 1'", 1),
            ('{v}, metadata := \'{"year": {"$gt": 2023}}\'', '''"fusion := 'rrf'"''', 1),
        ],
    )
    def test_options_have_dicts_texts_in_quotes_and_what_is_pasted(self, shell, option, value, found):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", f"import json\nv = {value}\ngt = 5")
        assert len(run(shell, f"%%search {option}\nlate delivery")) == found
        run(shell, "%sqlrag --close")

    @pytest.mark.slow
    def test_a_filter_of_sql_is_json(self, shell):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", """v = {"agent": "O'Neil"}""")
        both = run(shell, "%%sql\nSELECT $v.agent AS agent FROM search('late', metadata := to_json($v))")
        assert both.to_dict("list") == {"agent": ["O'Neil"]}
        with pytest.raises(duckdb.Error) as error:
            run(shell, "%%sql\nFROM search('late', metadata := {'agent': 'x'})")
        assert "to_json({'year': 2024})" in error.value._render_traceback_()[1]
        run(shell, "%sqlrag --close")

    @pytest.mark.parametrize(
        ("option", "value", "told"),
        [
            ("k := $nosuch", "1", r"The parameter \$nosuch is no variable of this notebook"),
            ("k := $1", "1", r"The parameter \$1 is no variable of this notebook"),
            ("k := ?", "1", r"The parameter \$1 is no variable of this notebook"),
            ("k := $v", "object()", "Unable to transform python value of type"),
            ("k := $v, alpha := $V", "1", r"^DuckDB takes \$v and \$V for one parameter\. Rename one of the two"),
        ],
    )
    def test_values_that_cannot_be_bound_are_told_alike(self, shell, option, value, told):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", f"v = {value}\nV = 2")
        errors = []
        for cell in (f"%%search {option}\nlate", f"%%sql\nFROM search('late', {option})"):
            with pytest.raises((InputError, duckdb.Error), match=told) as caught:
                run(shell, cell)
            errors.append((type(caught.value), str(caught.value)))
        assert errors[0] == errors[1]
        run(shell, "%sqlrag --close")

    @pytest.mark.parametrize(
        "cell", ["%sqlrag --help", "%search -h", "%sql --help ", "%%sql --help\n--", "%%search -h\nx"]
    )
    def test_help_of_a_magic_is_its_description(self, shell, capsys, cell):
        run(shell, "%load_ext sqlrag")
        assert run(shell, cell) is None
        shown = capsys.readouterr().out
        assert re.search(r"%sqlrag kb\.duckdb|%%search k := 5|\$name is the value", shown)
        assert "`" not in shown

    @pytest.mark.parametrize(
        "cell", ["%%sql found <<\nSELECT 1", "%sql found << SELECT 1", "%%sql found= <<\nSELECT 1"]
    )
    def test_the_name_of_a_result_as_jupysql_has_it_is_told_how(self, shell, cell):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb")
        with pytest.raises(InputError, match=r"JupySQL's .* found = %sql SELECT …, and found = _ in the next cell"):
            run(shell, cell)
        run(shell, "%%sql\nSELECT 1 << 2 AS n", "found = _")
        assert shell.user_ns["found"].loc[0, "n"] == 4
        run(shell, "%sqlrag --close")

    @pytest.mark.slow
    def test_sql_has_the_variables_of_the_notebook_as_values(self, shell, capsys):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", "import numpy as np, pandas as pd")
        run(shell, "q = \"it's; DROP\"\nn = np.int64(1)\nids = pd.Series([2, 3])\nlate = 'late'")
        frame = run(
            shell, "%%sql\nCREATE TEMP TABLE v AS SELECT $q AS a;\nINSERT INTO v VALUES ($n);\nFROM v ORDER BY a"
        )
        assert frame["a"].tolist() == ["1", "it's; DROP"]
        assert run(shell, "%%sql\nFROM search($late, k := $n)")["node_id"].tolist() == ["late.md#0"]
        frame = run(shell, "%sql SELECT unnest($ids) AS i, {'n': $n}.n AS n, $$q$$ AS t")
        assert frame.to_dict("list") == {"i": [2, 3], "n": [1, 1], "t": ["q", "q"]}
        run(shell, "def f(here):\n    return get_ipython().run_line_magic('sql', 'SELECT $here AS h')")
        assert run(shell, "f('local')").loc[0, "h"] == "local"
        assert "Note" not in capsys.readouterr().out
        assert list(run(shell, "%sql SELECT '{q}' AS a, '%{nosuch}%' AS b, '$q' AS c").loc[0]) == [
            "{q}",
            "%{nosuch}%",
            "$q",
        ]
        told = "Note: {} is text in SQL. $q, without quotes, binds the variable."
        notes = [line for line in capsys.readouterr().out.splitlines() if line.startswith("Note")]
        assert notes == [told.format("{q}"), told.format("'$q'")]
        for parameter, told in {
            "$nosuch": r"\$nosuch is .* nosuch = 'late delivery'",
            "?": r"q = .*, and write \$q\.",
        }.items():
            with pytest.raises(InputError, match=told):
                run(shell, f"%%sql\nDROP TABLE v; SELECT {parameter}")
        assert len(run(shell, "%sql FROM v")) == 2
        run(shell, "%sqlrag --close")

    def test_values_of_numpy_and_of_data_frames_are_bound(self, shell):
        pytest.importorskip("polars", reason="needs polars, which the notebook extra brings")
        run(shell, "%load_ext sqlrag", "import numpy as np, pandas as pd, polars as pl\nfrom datetime import date")
        con = run(shell, "%sqlrag kb.duckdb")
        for value, bound in {
            "pd.Series(pd.to_datetime(['2024-01-01', None]))": [datetime(2024, 1, 1), None],
            "pd.DatetimeIndex(['2024-01-01'])": [datetime(2024, 1, 1)],
            "np.array(['2024-01-01'], 'datetime64[ns]')": [datetime(2024, 1, 1)],
            "np.array(['2024-01-01'], 'datetime64[D]')": [date(2024, 1, 1)],
            "np.timedelta64(10**9, 'ns')": timedelta(seconds=1),
            "pd.Series(['a', None])": ["a", None],
            "pd.Series([1, None], dtype='Int64')": [1, None],
            "pd.Series(['a', 'b'], dtype='category')": ["a", "b"],
            "pd.Series([np.int64(1)], dtype=object)": [1],
            "pl.Series([date(2024, 1, 1)])": [date(2024, 1, 1)],
            "[np.int64(1), np.int64(2)]": [1, 2],
            "(np.float32(.5),)": [0.5],
            "{np.bool_(True)}": [True],
            "range(2)": [0, 1],
            "{'a': np.int64(1)}": {"a": 1},
            "b'a'": b"a",
        }.items():
            run(shell, f"v = {value}", "%sql CREATE OR REPLACE TEMP TABLE t AS SELECT $v AS v")
            assert con.execute("FROM t").fetchall() == [(bound,)], value
        con.close()

    def test_parameters_of_one_statement_that_differ_in_case_alone(self, shell):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", "Q = 'late delivery'\nq = 'late'")
        for text in ("SELECT $Q AS a, $q AS b", "SELECT $q AS a, '$Q' AS t, $q -- $Q\n|| $Q"):
            with pytest.raises(InputError, match=r"^DuckDB takes \$(Q and \$q|q and \$Q) for one parameter\. Rename"):
                run(shell, f"%%sql\nSELECT 1; {text}")
        for text in ("SELECT $q AS a, '$Q' AS b, $$Q $Q$$ AS c -- $Q", "SELECT $Q; SELECT $q AS a, $q /* $Q\n*/ AS b"):
            assert run(shell, f"%%sql\n{text}").loc[0, "a"] == "late"
        run(shell, "%sqlrag --close")

    @pytest.mark.parametrize("name", ["_", "__", "_sql", "_values", "_con", "con", "scope", "statement"])
    def test_a_table_of_any_name_is_the_notebooks_or_none(self, shell, name):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", "import pandas as pd")
        with pytest.raises(
            duckdb.Error, match=rf"Table with name {name} does not exist|Python Object \"{name}\" of type"
        ):
            run(shell, f"%sql FROM {name}")
        run(shell, f"{name} = pd.DataFrame({{'a': [7]}})")
        assert run(shell, f"%sql FROM {name}").loc[0, "a"] == 7
        assert run(shell, f"%sql FROM {name}; SELECT a + 1 AS a FROM {name}").loc[0, "a"] == 8
        run(shell, "%sqlrag --close")

    def test_no_note_tells_of_a_comment(self, shell, capsys):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb", "q = 1")
        run(shell, "%sql SELECT 1 AS a -- {q}", "%%sql\nSELECT /* '$q'\n{q} */ 1 -- it's {q}\n")
        assert "Note" not in capsys.readouterr().out
        run(shell, "%sql SELECT '-- {q}' AS a -- {q}")
        assert capsys.readouterr().out.count("Note: {q} is text in SQL.") == 1
        run(shell, "%sqlrag --close")

    @pytest.mark.rest
    def test_a_connection_without_search_says_how_to_ask_it(self, shell):
        run(shell, "%load_ext sqlrag", "import duckdb, sqlrag", "con = duckdb.connect()")
        told = "%%sql runs on it. It has no search: %sqlrag kb.duckdb opens a file with it."
        for registered in ("", "kb", "my docs"):
            if registered:
                run(shell, f"sqlrag.register(con, 'kb.duckdb', {registered!r})", "%sqlrag con")
                first = f"{registered}_search" if registered == "kb" else '"my docs_search"'
                told = f"%%sql asks what is registered here, {registered}: FROM {first}('late delivery'). %search is"
            con = run(shell, "%sqlrag con")
            run(shell, "con.execute('SELECT 42')")
            assert shell.display_formatter.format(con)[0]["text/plain"].startswith(f"Connected: {told}")
            assert con.fetchall() == [(42,)], "showing a connection has taken its result"
            for cell in ("%search late", "%%search 3\nlate"):
                with pytest.raises(InputError) as caught:
                    run(shell, cell)
                assert str(caught.value).startswith(f"%search cannot ask this connection. {told}")
            if registered:
                assert len(run(shell, f"%%sql\nFROM {first}('late', k := 1)")) == 1
            run(shell, "con.close()\ncon = duckdb.connect()")

    @pytest.mark.parametrize(
        ("cell", "kind"),
        {
            "%sqlrag a b": "InputError: Name one file",
            "%%search top_k := 3\nlate": "InputError: %%search has no option",
            "%%sql\nSELECT nosuch": "BinderException: Binder Error: ",
        }.items(),
    )
    def test_an_error_of_a_cell_is_shown_without_frames(self, shell, capsys, cell, kind):
        run(shell, "%load_ext sqlrag", "%sqlrag kb.duckdb")
        capsys.readouterr()
        done = shell.run_cell(cell)
        shown = "".join(capsys.readouterr())
        assert shown.startswith(kind)
        assert shown.rstrip("\n") == f"{type(done.error_in_exec).__name__}: {done.error_in_exec}"
        run(shell, "%sqlrag --close")

    @pytest.mark.slow
    def test_an_error_that_is_neither_sqlrags_nor_duckdbs_keeps_its_frames(self, shell, capsys):
        run(shell, "%load_ext sqlrag")
        shell.run_cell("%sqlrag 'a")
        assert "Traceback" in "".join(capsys.readouterr())

    def test_a_connection_that_the_notebook_closed_is_named(self, shell, made):
        run(shell, "%load_ext sqlrag", f"con = %sqlrag '{made}'", "con.close()")
        with pytest.raises(InputError, match=rf"No file is open\. Name one: %sqlrag {made}$"):
            run(shell, "%search late")

    @pytest.mark.slow
    def test_errors_are_those_of_sqlrag_where_they_are_its_own(self, shell, tmp_path):
        make_small_store(tmp_path / "given.duckdb")
        run(shell, "%load_ext sqlrag", "%sqlrag given.duckdb")
        with pytest.raises(ModelUnavailableError):
            run(shell, "%search pond")
        with pytest.raises(duckdb.BinderException):
            run(shell, "%%sql\nSELECT nosuch")
        with pytest.raises(InputError, match="There is no question"):
            run(shell, "%search ")
        with pytest.raises(InputError, match="Name one file"):
            run(shell, "%sqlrag a.duckdb b.duckdb")

    def test_the_sql_cell_of_another_extension_is_left_and_told_how(self, shell, capsys):
        shell.register_magic_function(lambda line, cell="": f"theirs: {line}{cell}", "line_cell", "sql")
        run(shell, "%load_ext sqlrag")
        assert "con = %sqlrag kb.duckdb" in capsys.readouterr().out
        assert run(shell, "%%sql\nSELECT 1") == "theirs: SELECT 1\n"
        con = run(shell, "con = %sqlrag kb.duckdb", "con")
        assert len(run(shell, "%search battery")) == 2
        con.close()


def test_jupysql_takes_the_connection(shell, capsys):
    pytest.importorskip("sql.magic", reason="needs JupySQL: pip install jupysql")
    run(shell, "%load_ext sql", "%load_ext sqlrag", "con = %sqlrag kb.duckdb", "%sql con")
    run(shell, "found = %sql SELECT similarity('a', 'a') AS s, embed('a') = embed('a') AS same")
    assert list(shell.user_ns["found"].DataFrame().loc[0]) == [1, True]
    shell.user_ns["con"].close()


@pytest.mark.slow
def test_a_notebook_runs_from_its_first_to_its_last_cell(kb):
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [
        nbformat.v4.new_code_cell(source)
        for source in (
            "%load_ext sqlrag\n%sqlrag kb.duckdb",
            "%%search k := 1\nwhat dies",
            "%%sql\nSELECT node_id FROM hybrid_query('late', embed('late'), k := 1)",
        )
    ]
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": kb.parent}})
    client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    shown = [cell.outputs[-1]["data"]["text/plain"] for cell in notebook.cells]
    assert shown[0] == "Connected: %search and %%sql ask this file."
    assert "battery.md#0" in shown[1]
    assert "late.md#0" in shown[2]


@pytest.mark.rest
def test_a_run_of_a_notebook_stops_at_an_error(kb):
    sources = ("%load_ext sqlrag\n%sqlrag kb.duckdb", "%%sql\nFROM nosuch", "1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": kb.parent}})
    with pytest.raises(CellExecutionError):
        client.execute(env={**os.environ, "PYTHONPATH": str(ROOT)})
    (shown,) = notebook.cells[1].outputs
    assert (shown["ename"], len(shown["traceback"])) == ("CatalogException", 1)
    assert shown["traceback"][0].startswith("CatalogException: Catalog Error: Table with name nosuch")
    assert not notebook.cells[2].outputs


MARIMO = """
import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo
    import sqlrag

    con = sqlrag.connect("kb.duckdb", verbose=False)
    return con, mo


@app.cell
def _(con, mo):
    found = mo.sql("SELECT node_id FROM search('what dies', k := 1)", engine=con, output=False)
    return (found,)


@app.cell
def _(con, mo):
    query = "SELECT similarity('late', 'late delivery') AS s, embed('a') = embed('a') AS same"
    similar = mo.sql(query, engine=con, output=False)
    return (similar,)


if __name__ == "__main__":
    _, definitions = app.run()
    found, similar = definitions["found"], definitions["similar"]
    print(found["node_id"].to_list(), round(similar["s"][0], 3), similar["same"][0])
"""


@pytest.mark.rest
def test_marimo_runs_a_notebook_on_the_connection(kb):
    pytest.importorskip("marimo", reason="needs marimo: pip install marimo")
    (kb.parent / "cells.py").write_text(MARIMO)
    path = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [sys.executable, "cells.py"], cwd=kb.parent, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stdout.strip() == "['battery.md#0'] 0.707 True", done.stderr


def test_importing_sqlrag_imports_no_ipython():
    code = "import sys, sqlrag; sqlrag.load_ipython_extension; print('IPython' in sys.modules, 'duckdb' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == ["False", "False"]
    assert "load_ipython_extension" not in sqlrag.__all__
