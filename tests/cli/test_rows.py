"""Rows of tables on the command line."""

from __future__ import annotations

import json
import re

import duckdb
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag.cli import app

HASHING = ["--provider", "hashing", "--model", "hashing-64"]


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows_of(done):
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def tickets(tmp_path):
    path = tmp_path / "tickets.csv"
    path.write_text("id,subject,body,price\n1,Late,The parcel is late,2.5\n2,Wet,The box is wet,10\n3,Empty,,1\n")
    return path


@pytest.fixture
def kb(tickets, tmp_path):
    path = tmp_path / "kb.duckdb"
    done = run("index-rows", tickets, "-o", path, "--key", "id", "--text", "body", "--title", "subject", *HASHING)
    assert done.exit_code == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert first.startswith("tickets: 3 rows read: 2 added, 0 changed, 0 columns changed, 0 unchanged, 0 removed, ")
    assert first.endswith("0 missing, 0 failed, 1 empty")
    assert done.stderr.splitlines() == ["empty: tickets/3: the row has no text"]
    return path


def test_rows_are_searched(kb):
    (row,) = rows_of(run("lexical-query", "box", "--db", kb, "--format", "json"))
    assert (row["row_key"], row["doc_id"], row["heading_path"]) == (2, "tickets/2", ["Wet"])
    (row,) = rows_of(run("lexical-query", "the", "--db", kb, "--metadata", 'price={"$lt": 5}', "-f", "json"))
    assert row["row_key"] == 1
    assert re.search(
        r"    Wet, row_key 2\n    .*\n    id: 2, price: 10.0\n\n", run("lexical-query", "box", "--db", kb).stdout
    )
    (document,) = rows_of(run("get-source-documents", "tickets/2#0", "--db", kb, "--format", "json"))
    assert document["row"] == {"id": 2, "subject": "Wet", "price": 10.0}
    shown = run("get-source-documents", "tickets/2#0", "--db", kb).stdout
    assert shown == "==> tickets/2 (14 characters) <==\nid: 2\nsubject: Wet\nprice: 10.0\n\nThe box is wet\n"
    header, line = run("get-source-documents", "tickets/2#0", "--db", kb, "--format", "csv").stdout.splitlines()
    assert header == "doc_id,file_path,file_name,text,metadata,row"
    header, line = run("lexical-query", "box", "--db", kb, "--format", "csv").stdout.splitlines()[:2]
    assert header.endswith(",row_key")
    assert line.endswith(",2")


def test_options_are_those_of_python(tickets, tmp_path):
    text = ["--text", "subject", "--text", "body"]
    more = ["--metadata", "price", "--collection", "t", "--quiet", *HASHING]
    assert run("index-rows", tickets, "-o", tmp_path / "a.duckdb", "--key", "id", *text, *more).exit_code == 0
    sqlrag.index_rows(
        tickets,
        tmp_path / "b.duckdb",
        key="id",
        text=["subject", "body"],
        metadata=["price"],
        collection="t",
        embedder=sqlrag.load_embedder("hashing-64", provider="hashing"),
    )
    found = []
    for name in ("a.duckdb", "b.duckdb"):
        with duckdb.connect(str(tmp_path / name), read_only=True) as con:
            found.append(con.execute("FROM rows_of_t ORDER BY id").fetchall())
            found[-1] += con.execute("SELECT definition FROM row_sources").fetchall()
    assert found[0] == found[1]
    assert found[0][0] == ("t/1", 1, 1, 2.5, "subject: Late\nbody: The parcel is late")


def test_a_query_of_a_database(tmp_path):
    shop, kb = tmp_path / "shop.duckdb", tmp_path / "kb.duckdb"
    with duckdb.connect(str(shop)) as con:
        con.execute("CREATE TABLE tickets AS SELECT 7 AS id, 'late' AS body")
    source = ["--query", "SELECT * FROM tickets", "--database", shop, "--collection", "shop"]
    (report,) = rows_of(run("index-rows", *source, "-o", kb, "--key", "id", "--text", "body", *HASHING, "-f", "json"))
    assert (report["collection"], report["added"], report["embedded"], report["failures"]) == ("shop", 1, 1, [])
    (report,) = rows_of(run("update-rows", kb, "-f", "json"))
    assert report["unchanged"] == 1


@pytest.mark.slow
def test_updates(kb, tickets):
    tickets.write_text("id,subject,body,price\n1,Late,The parcel is very late,2.5\n3,Empty,,1\n")
    done = run("update-rows", kb)
    assert done.exit_code == 0
    assert "2 rows read: 0 added, 1 changed" in done.stdout
    assert "1 row of the file not in the source; prune removes them" in done.stderr
    (report,) = rows_of(run("update-rows", "--db", kb, "--collection", "tickets", "--prune", "-f", "json"))
    assert (report["unchanged"], report["removed"], report["empty"]) == (1, 1, 1)
    assert "1 unchanged" in run("update", kb).stdout
    assert run("update-rows", kb, "--since", "price", "--quiet").stdout == ""
    tickets.write_text("id,subject,body,price\n")
    done = run("update-rows", kb)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "has lost 1 of the 1 rows" in done.stderr
    assert run("update-rows", kb, "--prune", "--force").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index-rows", "-o", "k.duckdb", "--key", "id", "--text", "body"], "Name files, such as tickets.parquet"),
        (["index-rows", "a.csv", "--query", "FROM t", "-o", "k", "--key", "id", "--text", "b"], "Name files"),
        (["index-rows", "--query", "DROP TABLE t", "-o", "k", "--key", "id", "--text", "b"], "must be one SELECT"),
        (["update-rows"], "Name a file"),
        (["update", "{kb}", "--stemmer", "none"], "is a file of no folder"),
    ],
)
def test_bad_usage(kb, arguments, message):
    done = run(*[part.format(kb=kb) for part in arguments])
    assert done.exit_code == 2
    assert message in " ".join(done.stderr.replace("│", " ").split())


def test_failures_have_no_traceback(kb, tickets):
    done = run("index-rows", tickets, "-o", kb, "--key", "nr", "--text", "body")
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert "no column 'nr' (key)" in done.stderr
    assert "no source of rows 'x'. It has tickets." in run("update-rows", kb, "--collection", "x").stderr


def test_rows_that_a_program_gave_do_not_stop_an_update(tmp_path):
    """The folder of the file is updated as ever; the remedy for the rows is Python's, and is not said as a command."""
    docs, kb = tmp_path / "docs", tmp_path / "kb.duckdb"
    docs.mkdir()
    (docs / "a.md").write_text("# Mango\n")
    assert run("build", docs, "-o", kb, *HASHING).exit_code == 0
    rows = pa.table({"id": [1], "body": ["The parcel is late"]})
    sqlrag.index_rows(rows, kb, key="id", text="body", collection="given", progress="off")
    (docs / "b.md").write_text("# Pump\n")
    remedy = f"update_rows('{kb}', source=…, collection='given')"
    done = run("update", kb)
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("1 added, 0 changed")
    assert (
        f"note: The rows of given were given by a program, so they were not read again. Pass them in Python: {remedy}."
        in done.stderr
    )
    assert [one["unchanged"] for one in rows_of(run("update", kb, "-f", "json"))] == [["a.md", "b.md"]]
    assert run("update", kb, "--quiet").output == ""
    for asked in (
        ["update-rows", kb],
        ["update-rows", kb, "--collection", "given"],
        ["update", kb, "--collection", "given"],
    ):
        done = run(*asked)
        assert (done.exit_code, remedy in done.stderr) == (2, True), done.stderr
    sqlrag.update_rows(
        kb, source=pa.table({"id": [1], "body": ["The parcel is here"]}), collection="given", progress="off"
    )
    alone = tmp_path / "alone.duckdb"
    model = sqlrag.load_embedder("hashing-64", provider="hashing")
    sqlrag.index_rows(rows, alone, key="id", text="body", collection="given", embedder=model, progress="off")
    done = run("update", alone)
    assert (done.exit_code, "given by a program" in done.stderr) == (0, True)


def test_an_update_of_a_collection_leaves_other_tables_alone(kb, tickets, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("id,body\n1,The lamp is red\n")
    assert run("index-rows", other, "-o", kb, "--key", "id", "--text", "body").exit_code == 0
    other.unlink()
    assert "2 unchanged" in run("update", kb, "--collection", "tickets").stdout
    done = run("update", kb)
    assert (done.exit_code, "other: There is no file" in done.stderr) == (1, True), done.stderr
