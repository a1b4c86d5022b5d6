"""``sqlrag doctor``: what it finds, the step that mends it, and the exit code."""

from __future__ import annotations

import json
import re
import socket

import duckdb
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag.cli import app
from tests.cli.test_cli import sqlrag_process
from tests.support.helpers import build


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SQLRAG_DB", raising=False)
    return tmp_path


def findings(*arguments, code=0):
    done = CliRunner().invoke(app, ["doctor", *map(str, arguments), "--format", "json"])
    assert done.exit_code == code, done.output
    return json.loads(done.stdout)


def of(rows, topic):
    return [(row["state"], row["found"], row["remedy"]) for row in rows if row["topic"] == topic]


def test_a_machine_without_a_file(home):
    rows = findings()
    assert f"sqlrag {sqlrag.__version__}, DuckDB {duckdb.__version__}" in of(rows, "versions")[0][1]
    assert of(rows, "configuration") == [("ok", "none: every option has its own default", "sqlrag init")]
    assert "GB free here" in of(rows, "disk")[0][1] or "MB free" in of(rows, "disk")[0][1]
    assert "hashing" in of(rows, "providers")[0][1]
    for row in rows:
        if row["topic"].startswith("extra "):
            assert row["remedy"] == f"pip install 'sqlrag-duckdb[{row['topic'][6:]}]'"
    assert [*of(rows, "extras")]


def test_a_missing_package_is_named_with_its_command(home, monkeypatch):
    from sqlrag.cli import workspace

    known = workspace.version

    def version(name):
        if name == "fastapi":
            raise workspace.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(workspace, "version", version)
    assert ("note", "not installed: fastapi", "pip install 'sqlrag-duckdb[rest]'") in of(findings(), "extra rest")


def test_what_is_not_installed_is_one_line_for_people(home, monkeypatch):
    from sqlrag.cli import workspace

    def version(name):
        if name in ("fastapi", "watchfiles"):
            raise workspace.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(workspace, "version", version)
    text = CliRunner().invoke(app, ["doctor"]).stdout
    assert re.findall(r"note .*not installed: (.*)", text) == ["rest, watch"]
    assert text.count("pip install 'sqlrag-duckdb[NAME]'") == 1


@pytest.mark.slow
def test_the_only_file_here_is_looked_at(home):
    kb = build(home, a_md="mango")
    assert of(findings(), kb.name)[0] == ("ok", "opens; schema 6", "")
    (home / "other.duckdb").write_bytes(kb.read_bytes())
    (row,) = of(findings(), "file")
    assert row == ("note", "none is named; here are kb.duckdb, other.duckdb", "sqlrag doctor kb.duckdb")


@pytest.mark.slow
def test_a_file_in_order(home):
    kb = build(home, a_md="mango")
    assert of(findings(kb), str(kb)) == [
        ("ok", "opens; schema 6", ""),
        ("ok", "the quick check finds no problem; the word index is in step", ""),
        ("ok", "its model hashing-64 (hashing) is here", ""),
    ]


@pytest.mark.slow
def test_a_folder_that_is_not_there(home):
    build(home, a_md="# A")
    assert len(of(findings("kb.duckdb"), "kb.duckdb")) == 3
    (home / "docs").rename(home / "other")
    old = home.resolve() / "docs"
    (note,) = [one for one in of(findings("kb.duckdb"), "kb.duckdb") if one[0] == "note"]
    assert note[1:] == (
        f"The folder {old} of kb.duckdb is not there",
        (
            "If it has been moved, name it: sqlrag update kb.duckdb FOLDER. If it is gone for good, this removes its "
            f"documents: sqlrag delete --folder {old} --collection default --db kb.duckdb"
        ),
    )
    assert CliRunner().invoke(app, ["delete", "--folder", str(old), "--db", "kb.duckdb"]).exit_code == 0
    assert not [one for one in of(findings("kb.duckdb"), "kb.duckdb") if one[0] == "note"]


@pytest.mark.slow
def test_a_damaged_file_and_the_command_that_mends_it(home):
    kb = build(home, a_md="mango", b_md="lychee")
    with duckdb.connect(str(kb)) as con:
        con.execute("DELETE FROM fts_main_documents.postings")
    rows = of(findings("--db", kb, code=1), str(kb))
    broken = [row for row in rows if row[0] == "broken"]
    assert broken
    assert {remedy for _, _, remedy in broken} == {f"sqlrag repair {kb}"}
    assert CliRunner().invoke(app, ["repair", str(kb)]).exit_code == 0
    findings(kb)


@pytest.mark.rest
def test_a_damaged_block_hides_no_other_file(home):
    """Whichever block it is: what is read first of it differs."""
    good = build(home, a_md="# A\n\nApples.", b_md="# B")
    whole, damaged = good.read_bytes(), []
    for start in range(12_288, len(whole), 262_144):
        damaged.append(f"bad{start}.duckdb")
        (home / damaged[-1]).write_bytes(whole[: start + 100] + b"\xde\xad\xbe\xef" * 4 + whole[start + 116 :])
    done = CliRunner().invoke(app, ["doctor", *damaged, str(good), "--format", "json"])
    rows = json.loads(done.stdout)
    assert "ok" in {state for state, *_ in of(rows, str(good))}
    told = [{state for state, *_ in of(rows, name)} for name in damaged]
    assert all(told)
    states = set().union(*told)
    assert states >= {"broken", "ok"}
    remedies = {remedy for name in damaged for state, _, remedy in of(rows, name) if state == "broken"}
    assert all(remedy.startswith(("copy a backup", "sqlrag repair")) for remedy in remedies), remedies


def test_files_that_cannot_be_used(home):
    (home / "text.duckdb").write_text("not a database at all")
    rows = findings("none.duckdb", "text.duckdb", code=1)
    (state, _, remedy), *_ = of(rows, "none.duckdb")
    assert (state, remedy) == ("broken", "sqlrag build FOLDER -o none.duckdb")
    assert of(rows, "text.duckdb")[0][0] == "broken"


@pytest.mark.rest
def test_a_file_that_another_process_has(home):
    kb = build(home, a_md="mango")
    with duckdb.connect(str(kb)):
        done = sqlrag_process("doctor", kb, cwd=home, SQLRAG_WAIT_SECONDS="0")
    assert done.returncode == 1
    assert re.search(r"broken .*kb\.duckdb", done.stdout)
    assert "--wait 60" in done.stdout


@pytest.mark.rest
def test_the_configuration(home):
    kb = build(home, a_md="mango")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
    (home / "sqlrag.toml").write_text(
        f'[store]\nfile = "{kb.name}"\n[embedding]\nbase_url = "{address}"\napi_key_env = "NO_SUCH_KEY"\n'
    )
    rows = findings(code=1)
    assert of(rows, "configuration") == [("ok", str(home / "sqlrag.toml"), "")]
    assert of(rows, "[embedding] base_url")[0][0] == "broken"
    assert of(rows, "[embedding] api_key_env") == [("broken", "NO_SUCH_KEY is not set", "export NO_SUCH_KEY=…")]
    assert of(rows, str(kb))[0] == ("ok", "opens; schema 6", "")
    (home / "sqlrag.toml").write_text('[collections.a]\nfolder = "docs"\n[collections.b]\nfolder = "gone"\n')
    rows = findings(code=1)
    assert of(rows, "[collections.b] folder")[0][0] == "broken"
    assert of(rows, "[collections.a] folder") == []
    (home / "sqlrag.toml").write_text("[chunking]\nsize = 3\n")
    (state, found, _), *_ = of(findings(code=1), "configuration")
    assert state == "broken"
    assert "line 2: [chunking] size is an unknown key" in found
