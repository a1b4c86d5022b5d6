"""Rows of tables on the command line."""

from __future__ import annotations

import json
import re
import shlex

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("option", [["--query"], []])
def test_a_query_of_a_database(tmp_path, option):
    shop, kb = tmp_path / "shop.duckdb", tmp_path / "kb.duckdb"
    with duckdb.connect(str(shop)) as con:
        con.execute("CREATE TABLE tickets AS SELECT 7 AS id, 'late' AS body")
    source = [*option, "SELECT * FROM tickets", "--database", shop, "--collection", "shop"]
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
    assert run("update", kb, "--prune", "--force").exit_code == 0
    assert "0 removed" in run("update-rows", kb, "--prune", "--force").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["index-rows", "-o", "k.duckdb", "--key", "id", "--text", "body"], "Name files, such as tickets.parquet"),
        (["index-rows", "a.csv", "--query", "FROM t", "-o", "k", "--key", "id", "--text", "b"], "Name files"),
        (["index-rows", "--query", "DROP TABLE t", "-o", "k", "--key", "id", "--text", "b"], "must be one SELECT"),
        (["update-rows"], "Name a file"),
        (["update", "{kb}", "--pattern", "*.md"], "is a file of no folder"),
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


def test_a_table_that_is_gone_leaves_the_reports_of_the_others(tmp_path):
    kb = tmp_path / "kb.duckdb"
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("id,body,level\n1,pump,low\n2,valve,high\n")
        build = run(
            "build", tmp_path / f"{name}.csv", "-o", kb, "--key", "id", "--text", "body", *HASHING[: 4 * (name == "a")]
        )
        assert build.exit_code == 0, build.stderr
    (tmp_path / "a.csv").unlink()
    (tmp_path / "b.csv").write_text("id,body,grade\n1,pump,low\n")
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(kb.read_bytes())
    done = run("update", kb, "--prune")
    assert (done.exit_code, done.stdout.split(",")[0]) == (1, "b: 1 row read: 0 added")
    assert "1 removed" in done.stdout
    for told in ("note: The column grade (VARCHAR) is new", "note: The column level is not in", "Updated: b."):
        assert told in done.stderr
    done = run("update-rows", copy, "--prune", "--format", "json")
    (report,) = json.loads(done.stdout)
    assert (done.exit_code, report["collection"], report["removed"]) == (1, "b", 1)


@pytest.mark.filterwarnings("default")
@pytest.mark.rest
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
    done = run("update-rows", kb)
    assert (done.exit_code, done.stdout, "note: The rows of given" in done.stderr) == (0, "", True), done.stderr
    for asked in (
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


def test_a_column_that_was_renamed_is_named_anew(kb, tickets):
    tickets.write_bytes(tickets.read_bytes().replace(b"body", b"text", 1))
    done = run("update-rows", kb)
    assert "call sqlrag build again with its new name and --collection tickets: rows" in done.stderr


def test_a_table_of_a_query_without_its_database_has_a_remedy(tmp_path):
    asked = ["index-rows", "-o", tmp_path / "new.duckdb", "--collection", "t", "--key", "id", "--text", "body"]
    for table in ("tickets", "shop.tickets"):
        done = run(*asked, "--query", f"SELECT * FROM {table}")
        assert done.exit_code == 2
        assert "name that, such as --database shop.duckdb; for a file" in done.stderr
        assert "Did you mean" not in done.stderr


@pytest.mark.slow
def test_an_update_of_a_collection_leaves_other_tables_alone(kb, tickets, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("id,body\n1,The lamp is red\n")
    assert run("index-rows", other, "-o", kb, "--key", "id", "--text", "body").exit_code == 0
    other.unlink()
    assert "2 unchanged" in run("update", kb, "--collection", "tickets").stdout
    done = run("update", kb)
    assert (done.exit_code, "other: There is no file" in done.stderr) == (1, True), done.stderr


HOUSES = "Die alten Häuser stehen am Fluss. " + "Wir gehen jeden Tag durch die Stadt und den Park. " * 12


def settings_of(kb):
    with sqlrag.Store(kb) as store:
        facts = store.get_embedding_metadata()
        chunks = store.cursor().execute("SELECT count(*) FROM documents").fetchone()[0]
        found = len(store.lexical_query("Häusern"))
    return facts["store"]["stemmer"], facts["chunking"]["chunk_size"], facts["chunking"]["chunk_overlap"], chunks, found


@pytest.mark.rest
def test_a_table_has_the_stemmer_and_the_chunks_of_a_folder(tmp_path):
    """Without a folder, too, and they can be changed later: then the whole file is rechunked or reindexed."""
    table, docs = tmp_path / "g.csv", tmp_path / "docs"
    table.write_text(f"id,t\n1,{HOUSES}\n", encoding="utf-8")
    docs.mkdir()
    (docs / "1.txt").write_text(HOUSES, encoding="utf-8")
    rows = ["--key", "id", "--text", "t", *HASHING]
    german = ["--stemmer", "german", "--chunk-size", "40", "--chunk-unit", "chars", "--chunk-overlap", "7"]
    a, b, c, d = (tmp_path / f"{name}.duckdb" for name in "abcd")
    assert run("build", table, "-o", a, *rows, *german).exit_code == 0
    assert run("build", docs, "-o", b, *HASHING, *german).exit_code == 0
    assert settings_of(a)[:3] == settings_of(b)[:3] == ("german", 40, 7)
    assert settings_of(a)[3] >= settings_of(b)[3] > 10
    assert settings_of(a)[4] == settings_of(b)[4] == 1

    assert run("index-rows", table, "-o", c, *rows).exit_code == 0
    assert settings_of(c) == ("porter", 512, 64, 1, 0)
    done = run("update", c, "--stemmer", "german")
    assert (done.exit_code, settings_of(c)) == (0, ("german", 512, 64, 1, 1)), done.stderr
    assert "the stemmer has changed: every chunk was reindexed" in done.stderr
    (facts, row) = rows_of(run("update", c, *german, "-f", "json"))
    assert (facts["rechunked"], facts["reindexed"], row["unchanged"]) == (["g/1"], False, 1)
    assert settings_of(c) == settings_of(a)

    assert run("build", table, "-o", d, *rows).exit_code == 0
    table.write_text(f"id,t\n1,{HOUSES}\n2,Ein Haus\n", encoding="utf-8")
    done = run("build", table, "-o", d, *rows, *german)
    assert done.exit_code == 0, done.stderr
    assert "note: The stemmer is german now: every chunk was reindexed." in done.stderr
    assert "note: The chunk policy has changed: 1 document rechunked." in done.stderr
    assert settings_of(d)[3:] == (settings_of(a)[3] + 1, 2)
    for name in (a, c, d):
        assert sqlrag.check(name) == []


@pytest.mark.slow
def test_settings_that_cannot_be_leave_nothing(tickets, kb, tmp_path):
    new = tmp_path / "new.duckdb"
    for file in (new, kb):
        for given, said in {
            ("--stemmer", "klingon"): "stemmer",
            ("--chunk-size", "0"): "--chunk-size must be above 0",
            ("--chunk-size", "9", "--chunk-overlap", "9"): "below",
        }.items():
            done = run("build", tickets, "-o", file, "--key", "id", "--text", "body", *HASHING, *given)
            assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert not new.exists()
    assert settings_of(kb)[:2] == ("porter", 512)


@pytest.mark.slow
def test_a_configuration_makes_new_files_of_tables_and_changes_none(tickets, kb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sqlrag.toml").write_text('[index]\nstemmer = "german"\n[chunking]\nchunk_size = 99\n')
    table = ["--key", "id", "--text", "body", "--title", "subject", *HASHING]
    assert run("build", tickets, "-o", kb, *table).exit_code == 0
    assert run("update", kb).exit_code == 0
    assert settings_of(kb)[:2] == ("porter", 512)
    assert run("build", tickets, "-o", "new.duckdb", *table).exit_code == 0
    assert settings_of(tmp_path / "new.duckdb")[:2] == ("german", 99)


@pytest.mark.rest
def test_long_lists_for_people_end_and_those_for_programs_do_not(tmp_path):
    """Of failures, deleted and unknown documents the first 20 are shown, and how many more there are."""
    table, kb = tmp_path / "t.csv", tmp_path / "kb.duckdb"
    table.write_text("id,body\n0,a pond\n" + "".join(f"{number},\n" for number in range(1, 51)))
    made = run("build", table, "-o", kb, "--key", "id", "--text", "body", *HASHING)
    line = f"empty: the row has no text: {', '.join(sorted(f't/{n}' for n in range(1, 51))[:20])} and 30 more"
    for shown in (made.stderr, run("update-rows", kb, "--quiet").stderr, run("info", kb).stdout):
        assert [one.strip() for one in shown.splitlines() if "empty: " in one] == [line]
    assert len(json.loads(run("info", kb, "-f", "json").stdout)["failures"]) == 50
    (report,) = rows_of(run("update-rows", kb, "-f", "json"))
    assert len(report["failures"]) == 50
    unknown = [f"no{number}.md" for number in range(50)]
    shown = run("delete", *unknown, "--db", kb)
    assert (shown.stderr.count("unknown: no"), "unknown: … and 30 more" in shown.stderr) == (20, True)
    assert json.loads(run("delete", *unknown, "--db", kb, "-f", "json").stdout)["unknown"] == unknown


def test_python_in_a_message_stays_python(tmp_path):
    (tmp_path / "r.xlsx").touch()
    done = run("build", tmp_path / "r.xlsx", "--key", "id", "--text", "t", "-o", tmp_path / "kb.duckdb")
    assert (done.exit_code, "xlsx'), …, collection='r')." in done.stderr) == (2, True), done.stderr


def test_the_remedies_for_keys_that_are_others_work(tmp_path):
    table, kb = tmp_path / "t.csv", tmp_path / "kb.duckdb"
    given = ["index-rows", table, "-o", kb, "--key", "id", "--text", "body"]
    table.write_text("id,body\n1,pump leaks\n2,valve stuck\n")
    assert run(*given, *HASHING).exit_code == 0
    table.write_text("id,body\nT-1,pump leaks\nT-2,valve stuck\n")
    done = run(*given)
    assert done.exit_code == 2
    command = shlex.split(re.search(r"sqlrag (update-rows .*--force)\.", done.stderr)[1])
    assert command == ["update-rows", str(kb), "--collection", "t", "--prune", "--force"]
    assert "To remove those, pass --force as well." in run("update-rows", kb, "--prune").stderr
    assert run(*command).exit_code == 0
    found = rows_of(run("search", "pump", "--mode", "lexical", "--db", kb, "--format", "json"))
    assert [row["doc_id"] for row in found] == ["t/T-1"]
