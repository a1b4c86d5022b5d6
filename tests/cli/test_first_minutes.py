"""What people meet first: the verbs that they guess, the defaults, the messages, the help and the completion."""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys

import duckdb
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag import Chunk, Store, settings
from sqlrag.cli import app
from sqlrag.embedders.weights import MINILM, bundle_is_installed
from tests.support.helpers import ROOT, build, write

HASHING = ["--provider", "hashing", "--model", "hashing-64"]
EMBEDDER = sqlrag.load_embedder("hashing-64", provider="hashing")
needs_offline = pytest.mark.skipif(not bundle_is_installed(), reason='the extra "offline" is not installed')


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def words(done):
    return " ".join(done.stderr.replace("│", " ").split())


def prepare(folder):
    """Write documents, and a file of them."""
    (folder / "docs").mkdir()
    (folder / "docs" / "mango.md").write_text("---\nyear: 2024\n---\n# Mango\n\nThe mango is a sweet fruit.\n")
    (folder / "docs" / "pump.md").write_text("# Pump\n\nThe pump needs a new seal. " + "It leaks. " * 40)
    with contextlib.chdir(folder):
        assert run("build", "docs", *HASHING, "-q").exit_code == 0


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working folder with documents, and a file of them."""
    prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SQLRAG_DB", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    prepare(folder)
    return folder


@pytest.fixture
def kept(made, monkeypatch):
    """The same for tests that leave it as it is."""
    monkeypatch.chdir(made)
    monkeypatch.delenv("SQLRAG_DB", raising=False)
    return made


def sqlrag_process(*arguments, cwd, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sqlrag", *map(str, arguments)],
        cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True, text=True, encoding="utf-8", timeout=120,
    )  # fmt: skip


# Verbs


@pytest.mark.rest
def test_build_search_and_update_need_no_file_to_be_named(here):
    assert (here / "kb.duckdb").exists()
    done = run("search", "a", "sweet", "mango")
    assert done.exit_code == 0
    assert done.stdout.startswith("Query: a sweet mango\n")
    assert "the file is kb.duckdb, the only one here" in done.stderr
    (here / "docs" / "new.md").write_text("# Kiwi\n\nA green fruit.\n")
    assert "1 added" in run("update").stdout
    assert "Kiwi" in run("search", "kiwi", "--mode", "lexical").stdout
    note = "kb.duckdb is searched for as a word; the file to search is named by --db kb.duckdb"
    assert note in run("search", "kb.duckdb", "kiwi").stderr
    assert "as a word" not in run("search", "none.duckdb", "kiwi", "--db", "kb.duckdb").stderr
    (here / "b.duckdb").write_bytes(b"")
    done = run("search", "kiwi")
    assert done.exit_code == 2
    assert "Here are b.duckdb, kb.duckdb." in words(done)
    for command in (["check"], ["delete", "docs/mango.md"]):
        done = run(*command)
        assert done.exit_code == 2
        assert "Here are b.duckdb, kb.duckdb." in words(done)
    (here / "b.duckdb").unlink()
    assert "the file is kb.duckdb, the only one here" in run("check").stderr
    done = run("delete", "docs/mango.md")  # what removes something has to be told where
    assert done.exit_code == 2
    assert "Name the file to delete from, such as: sqlrag delete kb.duckdb docs/mango.md. Here is" in words(done)
    assert run("delete", "mango.md", "kb.duckdb", "pump.md").stdout.startswith("2 documents with ")


def test_ask_without_a_model_says_what_to_name(here):
    done = run("ask", "a", "sweet", "mango")
    assert done.exit_code == 2
    assert "--chat-model llama3.2 --chat-base-url http://localhost:11434/v1" in words(done)
    assert "sqlrag prompt" in words(done)


@pytest.mark.slow
def test_search_is_the_search_of_its_mode(here):
    for mode in ("hybrid", "vector", "lexical"):
        found = json.loads(run("search", "sweet", "mango", "--mode", mode, "-f", "json", "--db", "kb.duckdb").stdout)
        assert found == json.loads(run(f"{mode}-query", "sweet mango", "-f", "json", "--db", "kb.duckdb").stdout)
    assert "No chunk holds" in run("search", '"mango sweet"', "--mode", "lexical").stderr  # quotes are operators there
    done = run("search", "mango", "--mode", "lexical", "--alpha", "0.2")
    assert (done.exit_code, "--alpha 0.2 has no effect with --mode lexical" in done.stderr) == (2, True)


@pytest.mark.rest
def test_rows_of_tables_go_through_build(here):
    (here / "tickets.csv").write_text("id,subject,body\n1,Late,The parcel is late\n2,Wet,The box is wet\n")
    table = ["--key", "id", "--text", "body", "--title", "subject"]
    assert run("build", "tickets.csv", *table, "-o", "t.duckdb", *HASHING).exit_code == 0
    assert run("build", "tickets.csv", *table).stdout.startswith("tickets: 2 rows read: 2 added")  # into kb.duckdb
    with duckdb.connect("t.duckdb", read_only=True) as con:
        assert con.execute("SELECT doc_id, heading_path FROM documents ORDER BY ALL").fetchall() == [
            ("tickets/1", ["Late"]),
            ("tickets/2", ["Wet"]),
        ]
    (here / "docs" / "new.md").write_text("# Kiwi\n")
    (here / "tickets.csv").write_text("id,subject,body\n1,Late,The parcel is very late\n2,Wet,The box is wet\n")
    done = run("update", "kb.duckdb", "-f", "json")
    folder, rows = json.loads(done.stdout)
    assert (folder["added"], rows["changed"]) == (["new.md"], 1)
    for arguments, said in {
        ("tickets.csv",): "need --key COLUMN",
        ("tickets.csv", *table, "--header-weight", "9"): "--header-weight 9.0 cannot be given for the rows of a table",
        ("tickets.csv", *table, "--overwrite"): "x.duckdb is brought up to date; to begin anew, delete it",
        ("docs", "--title", "subject"): "--title subject cannot be given for a folder of documents",
        ("docs", "tickets.csv"): "Name one folder",
        (): "Name a folder of documents",
    }.items():
        done = run("build", *arguments, "-o", "x.duckdb")
        assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
    assert not (here / "x.duckdb").exists()


@pytest.mark.slow
def test_update_knows_its_folders_and_their_patterns(here):
    (here / "more").mkdir()
    (here / "more" / "a.txt").write_text("alpha")
    (here / "more" / "a.md").write_text("beta")
    assert run("update", "kb.duckdb", "more", "--collection", "more", "--pattern", "*.txt").exit_code == 0
    (here / "more" / "b.txt").write_text("gamma")
    (here / "more" / "b.md").write_text("delta")
    reports = json.loads(run("update", "kb.duckdb", "-f", "json").stdout)
    assert [report["added"] for report in reports] == [[], ["more:b.txt"]]
    (report,) = json.loads(run("update", "kb.duckdb", "--collection", "default", "-f", "json").stdout)
    assert report["unchanged"] == ["mango.md", "pump.md"]
    (here / "more").rename(here / "moved")
    done = run("update", "kb.duckdb")
    assert (done.exit_code, "is not there. If it has been moved" in done.stderr) == (1, True)
    assert "name it: sqlrag update kb.duckdb FOLDER --collection more. If" in words(done)
    assert run("update", "kb.duckdb", "moved", "--collection", "more").stdout.startswith("0 added, 0 changed, 0 ren")
    with Store.create(here / "empty.duckdb", 64, embedder=EMBEDDER):
        pass
    done = run("update", "empty.duckdb")
    assert (done.exit_code, "does not know its folder" in done.stderr) == (2, True)


@pytest.mark.slow
def test_collections_that_were_imported_without_their_folders_are_named(here):
    (here / "notes").mkdir()
    (here / "notes" / "kickoff.md").write_text("# Kickoff\n")
    assert run("update", "kb.duckdb", "notes", "--collection", "notes").exit_code == 0
    for name in ("kb.duckdb x.ragmd", "x.ragmd new.duckdb", "x.ragmd other.duckdb"):
        assert run("convert", *name.split()).exit_code == 0
    done = run("update", "new.duckdb")
    assert (done.exit_code, "new.duckdb does not know its folders." in done.stderr) == (2, True)
    for name, documents in (("default", "2 documents"), ("notes", "1 document")):
        told = f"The folder of the collection {name} ({documents}) is not known. To update it, name it once: "
        assert f"{told}sqlrag update new.duckdb FOLDER --collection {name}" in words(done)
    assert run("update", "new.duckdb", "docs").stdout.startswith("0 added, 0 changed, 0 renamed, 2 unchanged")
    for asked in ("update", "doctor"):
        assert "folder of the collection notes (1 document) is not known" in run(asked, "new.duckdb").output
    assert run("update", "new.duckdb", "notes", "--collection", "notes").stdout.startswith("0 added, 0 changed")
    for asked in ("update", "doctor"):
        assert "is not known" not in run(asked, "new.duckdb").output
    # The folder under another collection: a note has the commands that mend it.
    assert run("update", "other.duckdb", "docs").exit_code == 0
    done = run("update", "other.duckdb", "notes")
    assert done.stdout.startswith("1 added")
    told = "note: The documents of the collection 'notes', of which no folder was known, are here. If this is it,"
    assert told in words(done)
    for command in re.findall(r"sqlrag [^;.]*\.duckdb'(?: --collection notes)?", words(done)):
        assert run(*shlex.split(command)[1:]).exit_code == 0, command
    with duckdb.connect("other.duckdb", read_only=True) as con:
        ids = con.sql("SELECT doc_id FROM source_documents ORDER BY doc_id").fetchall()
    assert ids == [("mango.md",), ("notes:kickoff.md",), ("pump.md",)]


@pytest.mark.rest
def test_an_empty_folder_blocks_no_other(here):
    write(here, a__a_md="alpha", z__z_md="zeta")
    for name in "az":
        assert run("update", "kb.duckdb", name, "--collection", name).exit_code == 0
    (here / "a" / "a.md").unlink()
    write(here, z__new_md="eta")
    done = run("update", "kb.duckdb", "--prune")
    assert (done.exit_code, "z:new.md" in done.stderr) == (1, True)
    assert "1 document of it stays in the file" in done.stderr
    assert run(*shlex.split(re.search(r"sqlrag (delete .*)\.$", done.stderr)[1])).exit_code == 0
    assert run("update", "kb.duckdb", "--prune").exit_code == 0


@pytest.mark.rest
def test_a_folder_that_is_gone_for_good_blocks_no_other(here):
    write(here, more__a_md="alpha", more__b_md="beta")
    assert run("update", "kb.duckdb", "more").exit_code == 0
    (here / "more").rename(here / "away")
    write(here / "docs", new_md="gamma")
    (here / "sqlrag.toml").write_text("[store]\nfile = 'kb.duckdb'\n")  # which names no collection
    done = run("update", "kb.duckdb", "--prune", "-f", "json")
    assert (done.exit_code, [one["added"] for one in json.loads(done.stdout)]) == (1, [["new.md"]])
    command = f"sqlrag delete --folder {here.resolve() / 'more'} --collection default --db kb.duckdb"
    remedy = f"this removes its documents: {command}"
    assert remedy in done.stderr
    done = run("update", "kb.duckdb", "more")
    assert (done.exit_code, remedy in done.stderr) == (1, True)
    for arguments in ([], ["--force"], ["-q"], ["--collection", "other"]):  # it may be on a disk that is not mounted
        done = run("update", "kb.duckdb", "more", "--prune", *arguments)
        assert (done.exit_code, done.stdout) == (1, "")
        assert "more" in done.stderr
    done = run(*shlex.split(command)[1:])
    assert (done.exit_code, done.stdout) == (0, "2 documents with 2 chunks deleted, 0 unknown\n")
    assert run("update", "kb.duckdb").exit_code == 0
    with Store("kb.duckdb") as store:
        found = store.cursor().execute("SELECT doc_id FROM sources ORDER BY doc_id").fetchall()
    assert found == [("mango.md",), ("new.md",), ("pump.md",)]


@pytest.mark.rest
def test_update_knows_what_was_ignored_the_last_time(here):
    """Also of a folder that has been moved, and until something else is ignored, or nothing."""

    def update(*arguments):
        reports = json.loads(run("update", "kb.duckdb", *arguments, "-f", "json").stdout)
        (report,) = reports if isinstance(reports, list) else [reports]
        return report["added"]

    write(here / "docs", en__a_md="alpha", office__b_md="beta")
    assert run("build", "docs", *HASHING, "--ignore", "en/", "--ignore", "office/", "--overwrite").exit_code == 0
    write(here / "docs", new_md="gamma")
    assert update() == ["new.md"]
    assert update("docs") == []
    assert update("--ignore", "en/") == ["office/b.md"]
    (here / "docs").rename(here / "moved")
    assert update("moved") == []
    assert update("--ignore", "") == ["en/a.md"]
    write(here / "moved", office__c_md="delta")
    assert update() == ["office/c.md"]
    assert update("--ignore", "new.md") == []
    (here / "sqlrag.toml").write_text("[collections.default]\nfolder = 'moved'\nignore = ['office/']\n")
    write(here / "moved", office__d_md="epsilon", office__new_md="zeta", en__new_md="eta")
    assert update() == ["en/new.md"]  # of the folders of a configuration nothing is remembered


@pytest.mark.rest
def test_one_pattern_as_a_text_is_remembered_as_one(here):
    sqlrag.prepare_embeddings("docs", "kb.duckdb", embedder=EMBEDDER, overwrite=True, patterns="m*.md", verbose=False)
    assert json.loads(run("update", "-f", "json").stdout)[0]["unchanged"] == ["mango.md"]
    assert "docs only 'm*.md' is read, as the last time; --pattern '*' reads all" in run("update").stderr
    (here / "sqlrag.toml").write_text("[store]\nfile = 'kb.duckdb'\n")
    assert "as the last time" in run("update").stderr
    assert "as the last time" not in run("update", "--pattern", "*").stderr
    assert "as the last time" not in run("update").stderr


@pytest.mark.slow
def test_programs_get_every_passage_of_a_document(here):
    write(here / "long", long_md="\n\n".join(f"# Valve {number}\n\nThe valve {number}." for number in range(5)))
    assert run("build", "long", *HASHING, "-o", "long.duckdb").exit_code == 0
    for search in (sqlrag.hybrid_query, sqlrag.lexical_query, sqlrag.vector_query):
        command = (search.__name__.replace("_", "-"), "valve", "--db", "long.duckdb", "--top-k", 4)
        rows = json.loads(run(*command, "-f", "json").stdout)
        assert [row["node_id"] for row in rows] == [row["node_id"] for row in search("valve", "long.duckdb", top_k=4)]
        assert len(rows) == 4
        table = run(*command).stdout
        assert "2 results" in table
        assert "Also in long.md" in table


# The default model


@pytest.mark.slow
@needs_offline
@pytest.mark.filterwarnings("default")
def test_without_the_default_model_the_installed_one_is_used_and_named(here, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("FASTEMBED_CACHE_PATH", str(here / "cache"))
    done = run("build", "docs", "-o", "default.duckdb")
    assert done.exit_code == 0
    assert (
        f"note: The model is {MINILM}, which is installed: the default, BAAI/bge-small-en-v1.5, is not" in done.stderr
    )
    assert sqlrag.get_embedding_metadata("default.duckdb")["embedding"]["model"] == MINILM
    (here / "t.csv").write_text("id,body\n1,late\n")
    with pytest.warns(UserWarning, match="which is installed") as warned:
        report = sqlrag.index_rows("t.csv", "rows.duckdb", key="id", text="body")
    assert any("which is installed" in warning for warning in report.warnings)
    assert not any("chunk_size" in warning for warning in report.warnings)  # nobody set it
    assert warned[0].filename == __file__
    with pytest.warns(UserWarning, match="which is installed") as warned:
        rows = sqlrag.embed_rows("t.csv", key="id", text="body")
    assert (rows.model, warned[0].filename) == (MINILM, __file__)
    assert any("which is installed" in notice for notice in rows.notices)
    done = run("build", "docs", "-o", "onnx.duckdb", "--provider", "onnx")
    assert (done.exit_code, "which is installed" in done.stderr) == (0, True)
    # A model that was named is never replaced.
    done = run("build", "docs", "-o", "named.duckdb", "--model", "BAAI/bge-small-en-v1.5")
    assert (done.exit_code, "is not in the cache" in done.stderr) == (1, True)
    monkeypatch.setattr("sqlrag.embedders.weights.bundle_is_installed", lambda: False)
    done = run("build", "docs", "-o", "named.duckdb")
    assert (done.exit_code, "Three ways out" in done.stderr) == (1, True)
    assert not (here / "named.duckdb").exists()


# Faults that were reported


def _completing(shell, folder):
    """Return a script that prints what the shell offers for the beginning of two lines."""
    if shell == "bash":
        return (
            'eval "$(sqlrag completion bash)"\n'
            "COMP_WORDS=(sqlrag se); COMP_CWORD=1; _sqlrag_completion sqlrag; echo ${COMPREPLY[@]}\n"
            "COMP_WORDS=(sqlrag search --mode le); COMP_CWORD=3; _sqlrag_completion sqlrag; echo ${COMPREPLY[@]}\n"
        )
    if shell == "fish":
        return "sqlrag completion fish | source\ncomplete -C 'sqlrag se'\ncomplete -C 'sqlrag search --mode le'\n"
    return (
        f"sqlrag completion zsh > {folder}/script; zsh -n {folder}/script && grep -q compinit {folder}/script\n"
        "_arguments() { print -r -- $@ }; _files() { }; compdef() { }; autoload() { :; }; compinit() { }\n"
        f"source {folder}/script\n"
        "words=(sqlrag se); CURRENT=2; _sqlrag_completion\n"
        "words=(sqlrag search --mode le); CURRENT=4; _sqlrag_completion\n"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_fault_U4_shells_complete_commands_and_values(shell, here):
    assert "_SQLRAG_COMPLETE" in run("completion", shell).stdout
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    program = here / "bin" / "sqlrag"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m sqlrag "$@"\n')
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(here)}
    script = here / "complete"
    script.write_text(_completing(shell, here))
    quick = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    done = subprocess.run(
        [shell, *quick, script], env=environment, capture_output=True, text=True, encoding="utf-8", timeout=120
    )
    assert {"search", "serve"} <= set(re.findall(r"[a-z-]+", done.stdout)), done
    assert "lexical" in done.stdout
    assert "hybrid" not in done.stdout.replace("hybrid-query", "")  # it does not begin with "le"
    assert "the file is" not in done.stderr


@pytest.mark.slow
def test_fault_U5_lines_are_as_wide_as_the_terminal(here, monkeypatch):
    for width in (60, 132):
        monkeypatch.setenv("COLUMNS", str(width))
        lines = run("search", "pump", "seal").stdout.splitlines()
        longest = max(map(len, lines))
        assert longest <= width
        assert longest > width - 12  # and they use it
    shown = sqlrag_process("search", "--help", cwd=here, COLUMNS="60").stdout.partition("Example:")[0].splitlines()
    assert max(map(len, shown)) <= 60
    assert max(map(len, shown)) > 50


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="it has no pseudo-terminals")
@pytest.mark.parametrize("environment", [{}, {"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_fault_U5_words_are_marked_in_a_terminal(environment, kept):
    import pty

    leader, follower = pty.openpty()
    started = {**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm", "COLUMNS": "80", **environment}
    if "NO_COLOR" not in environment:
        started.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "sqlrag", "search", "mango", "--mode", "lexical"]
    with subprocess.Popen(command, cwd=kept, env=started, stdout=follower, stderr=subprocess.DEVNULL) as process:
        os.close(follower)
        shown = b""
        while True:
            try:
                part = os.read(leader, 4096)
            except OSError:  # Linux says so at the end
                break
            if not part:
                break
            shown += part
    os.close(leader)
    assert process.returncode == 0
    assert (b"The \x1b[1;31mmango\x1b[0m is a sweet fruit." in shown) == (not environment)
    assert (b"\x1b" in shown) == (not environment)
    assert b"Query: mango" in shown  # what was asked is not marked


MISTAKES = [
    (["search", "x", "--top-k", "0"], 2, "--top-k must be"),
    (["search", "x", "--top-k", "ten"], 2, "--top-k"),
    (["search", "x", "--b", "2"], 2, "--b must be"),
    (["search", " "], 2, "blank"),
    (["search", "x", "--metadata", "year>=2020"], 2, """write 'year={"$gte": 2020}'"""),
    (["search", "x", "--metadata", "day > 2024-06-01"], 2, """write 'day={"$gt": "2024-06-01"}'"""),
    (["search", "x", "--metadata", "status!=open"], 2, """write 'status={"$ne": "open"}'"""),
    (["search", "x", "--metadata", "year!=2020"], 2, """write 'year={"$ne": 2020}'"""),
    (["search", "x", "--model", "other"], 1, "you passed --model other"),
    (["search", "x", "--db", "nope.duckdb"], 1, "sqlrag build FOLDER -o nope.duckdb"),
    (["search", "x", "--fts-top-k", "3", "--lexical-top-k", "4"], 2, "--fts-top-k 3 and --lexical-top-k 4"),
    (["build", "docs", *HASHING], 1, "Pass --overwrite to replace it"),
    (["build", "docs", "-o", "x.duckdb", "--base-url", "http://localhost:1"], 2, "--provider openai or --provider ol"),
    (["build", "docs", "-o", "x.duckdb", "--model", "nonsense"], 1, "or another provider"),
    (["build", "docs", "-o", "x.duckdb", "--chunk-size", "0", *HASHING], 2, "--chunk-size must be"),
    (["build", "docs", "-o", "x.duckdb", "--workers", "2"], 2, "or pass --engine ray"),
    (["build", "nowhere", "-o", "x.duckdb", *HASHING], 1, "nowhere does not exist"),
    (["update", "kb.duckdb", "--model", "other"], 1, "sqlrag reembed FILE --model NAME"),
    (["update", "kb.duckdb", "docs", "--chunk-size", "0"], 2, "--chunk-size must be"),
    (["reembed", "kb.duckdb", "--memory-limit", "9"], 2, "--memory-limit must be"),
    (["delete", "--db", "kb.duckdb"], 2, "Nothing says what to delete"),
    (["convert", "kb.duckdb"], 2, "TARGET"),
    (["build", "docs", "-o", "b.duckdb", "--collection", "a", "--collection=b"], 2, "--collection may be given once"),
    (["update", "docs", "kb.duckdb", "--collection", "a", "--collection", "a"], 2, "--collection may be given once"),
    (["evaluate", "nope.csv"], 1, "nope.csv"),
    (["prompt", "x", "--template", "nope.txt"], 1, "nope.txt"),
]


@pytest.mark.parametrize(
    ("arguments", "code", "said"), MISTAKES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_fault_U6_messages_speak_of_options_and_codes_are_2_for_bad_usage(arguments, code, said, kept):
    done = run(*arguments)
    assert (done.exit_code, said in words(done)) == (code, True), done.stderr
    python = set(inspect.signature(sqlrag.prepare_embeddings).parameters) - {
        "overwrite",
        "collection",
        "stemmer",
        "engine",
    }
    python |= set(inspect.signature(sqlrag.hybrid_query).parameters) - {"fusion", "alpha", "b", "fields", "context"}
    python = {name for name in python if "_" in name} | {
        "prepare_embeddings",
        "update_embeddings",
        "=True",
        "TextEmbedding",
    }
    assert not [name for name in python if name in done.stderr], done.stderr
    assert not re.search(r"\w\(\w+[,)]", done.stderr)


def test_fault_U6_keywords_that_are_like_others(here):
    for call, named in {
        lambda: sqlrag.prepare_embeddings("docs", "k.duckdb", model="x"): "prepare_embeddings.*'embed_model_name'",
        lambda: sqlrag.prepare_embeddings("docs"): r"prepare_embeddings\(\) missing .*'output_db'",
        lambda: sqlrag.hybrid_query("x", "kb.duckdb", topk=3): r"hybrid_query\(\) got .* 'topk'. Did you mean 'top_k'",
        lambda: sqlrag.vector_query("x", "kb.duckdb", min_similarty=3): "vector_query.* mean 'min_similarity'",
        lambda: sqlrag.update_embeddings("docs", "kb.duckdb", pattern="x"): "update_embeddings.* mean 'patterns'",
        lambda: Store("kb.duckdb").hybrid_query("x", topk=3): "hybrid_query.* mean 'top_k'",
        lambda: Store("kb.duckdb").hybrid_query("x", k=3): "hybrid_query.* mean 'top_k'",
        lambda: Store("kb.duckdb").lexical_query("x", limit=3): "lexical_query.* mean 'top_k'",
        lambda: Store("kb.duckdb").hybrid_query(q="x"): "hybrid_query.* mean 'query_text'",
        lambda: sqlrag.vector_query("x", "kb.duckdb", topK=3): "vector_query.* mean 'top_k'",
        lambda: sqlrag.hybrid_query("x", "kb.duckdb", where={}): "hybrid_query.* mean 'metadata'",
        lambda: sqlrag.hybrid_query(question="x", db_path="kb.duckdb"): "hybrid_query.* mean 'query_text'",
        lambda: sqlrag.hybrid_query("x", file="kb.duckdb"): "hybrid_query.* mean 'db_path'",
        lambda: sqlrag.update_embeddings("docs", "kb.duckdb", exclude="x"): "update_embeddings.* mean 'ignore'",
        lambda: sqlrag.answer("x", "kb.duckdb", model="x"): "answer.* mean 'chat_model'",
    }.items():
        with pytest.raises(TypeError, match=named):
            call()
    with pytest.raises(TypeError, match=r"'xyz'$"):
        sqlrag.hybrid_query("x", "kb.duckdb", xyz=3)


@pytest.mark.rest
def test_fault_U7_one_name_for_one_thing(here):
    for command in ("ask", "serve"):
        shown = run(command, "--help").stdout
        assert "--chat-base-url" in shown
        assert not re.search(r"(?<!chat)-?-base-url", shown.replace("--chat-base-url", ""))
    at = "http://127.0.0.1:9/v1"
    for name in ("--base-url", "--chat-base-url"):
        done = run("ask", "mango", "--chat-model", "m", name, at, "--max-retries", "0")
        assert (done.exit_code, "127.0.0.1" in done.stderr) == (1, True)  # nothing listens there
        assert run("serve", "nope.duckdb", name, at, "--chat-model", "m").exit_code == 1  # the option is known
    shown = run("search", "--help").stdout
    assert "--tags-any TAG" in shown
    assert "--tag TAG" not in shown
    assert "--fts-top-k" not in shown
    for name in ("--tag", "--tags-any"):
        assert run("search", "mango", name, "none").stdout.startswith("Query: mango\nNo results")
    for places in (["kb.duckdb", "docs"], ["docs", "kb.duckdb"], ["docs", "--db", "kb.duckdb"]):
        assert "2 unchanged" in run("update", *places).stdout
    assert run("update", "docs", "docs").exit_code == 2


@pytest.mark.parametrize(
    ("guess", "meant"),
    [
        ("query", "search"),
        ("find", "search"),
        ("index", "build"),
        ("ingest", "build"),
        ("create", "build"),
        ("serch", "search"),
        ("export", "convert"),
        ("ls", "info"),
        ("help", "--help"),
        ("version", "--version"),
    ],
)
def test_fault_U8_other_verbs_suggest_ours(guess, meant):
    done = run(guess, "x")
    assert done.exit_code == 2
    assert f"No such command '{guess}'. Did you mean '{meant}'" in words(done)


@pytest.mark.slow
def test_fault_U8_a_question_needs_no_quotes(here):
    for command in ("hybrid-query", "vector-query", "lexical-query", "prompt"):
        assert (
            run(command, "sweet", "mango", "--db", "kb.duckdb").stdout
            == run(command, "sweet mango", "--db", "kb.duckdb").stdout
        )
    assert "sweet" in run("explain", "sweet", "mango", "mango.md#0").stdout


def test_fault_U9_a_taken_port_is_an_error_before_anything_is_served(kept):
    pytest.importorskip("uvicorn")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run("serve", "kb.duckdb", "--port", taken.getsockname()[1])
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert "already in use" in done.stderr
    assert "Serving" not in done.stderr


@pytest.mark.parametrize("value", ['year={"$gt": }', "year={$gt: 3}", "year={: 2020}"])
def test_fault_U10_an_operator_that_is_no_json_is_refused(value, kept):
    done = run("search", "mango", "--metadata", value)
    assert done.exit_code == 2
    assert "begins as an operator does" in words(done)
    assert "mango.md" in run("search", "mango", "--metadata", 'year={"$gte": 2024}').stdout


def test_fault_U15_a_question_with_a_wrong_key_names_it(here):
    for row, said in {
        '{"question": "x", "documents": ["mango.md"]}': r"no 'relevant', only \['question', 'documents'\]",
        '{"ask": "x", "relevant": ["mango.md"]}': r"no 'query', only \['ask', 'relevant'\]",
    }.items():
        with pytest.raises(sqlrag.InputError, match=said):
            sqlrag.evaluate([json.loads(row)], "kb.duckdb")


@pytest.mark.slow
def test_fault_U16_a_listed_model_is_found_by_its_name(here):
    assert ("hashing", "hashing-384") in sqlrag.models().ready
    assert sqlrag.load_embedder("hashing-384").provider == "hashing"
    assert run("reembed", "kb.duckdb", "--model", "hashing-384").exit_code == 0
    assert sqlrag.get_embedding_metadata("kb.duckdb")["embedding"]["provider"] == "hashing"
    with pytest.raises(sqlrag.ModelUnavailableError):
        sqlrag.load_embedder("hashing-384", provider="onnx")


def test_fault_U18_no_candidates_leave_a_leg_out(here):
    words_only = sqlrag.hybrid_query("mango", "kb.duckdb", vector_top_k=0)
    assert [(row["score_type"], row["vector_rank"]) for row in words_only] == [("bm25", None)]
    vectors_only = sqlrag.hybrid_query("mango", "kb.duckdb", fts_top_k=0)
    assert [row["node_id"] for row in vectors_only] == [
        row["node_id"] for row in sqlrag.vector_query("mango", "kb.duckdb")
    ]
    assert {(row["score_type"], row["lexical_rank"]) for row in vectors_only} == {("vector", None)}
    assert words_only.sql.startswith("FROM lexical_query")
    for options in ({"fts_top_k": 0, "vector_top_k": 0}, {"fts_top_k": 0, "feedback": 2}):
        with pytest.raises(sqlrag.InputError, match="needs both legs"):
            sqlrag.hybrid_query("mango", "kb.duckdb", **options)
    with pytest.raises(sqlrag.InputError, match="vector_top_k must be a whole number from 0"):
        sqlrag.hybrid_query("mango", "kb.duckdb", vector_top_k=-1)


def test_fault_U19_the_folder_of_the_output_is_made(here):
    sqlrag.prepare_embeddings("docs", "new/folder/kb.duckdb", embedder=EMBEDDER, progress="off")
    assert [path.name for path in (here / "new" / "folder").iterdir()] == ["kb.duckdb"]
    assert run("convert", "kb.duckdb", "exported/here/kb.ragmd").exit_code == 0
    (here / "empty.md").mkdir()
    (here / "empty.md" / "a.md").write_text("")
    with pytest.raises(sqlrag.NotFoundError):
        sqlrag.prepare_embeddings("empty.md", "left/no/kb.duckdb", embedder=EMBEDDER, progress="off")
    assert not (here / "left").exists()  # nothing came of it
    with pytest.raises(sqlrag.StoreError):
        sqlrag.prepare_embeddings("docs", "docs/mango.md/kb.duckdb", embedder=EMBEDDER, progress="off")


def test_fault_U20_the_published_modules_are_there():
    from sqlrag.prepare import prepare_embeddings
    from sqlrag.query import hybrid_query, print_results, reciprocal_rank_fusion

    assert (prepare_embeddings, hybrid_query) == (sqlrag.prepare_embeddings, sqlrag.hybrid_query)
    assert (print_results, reciprocal_rank_fusion) == (sqlrag.print_results, sqlrag.reciprocal_rank_fusion)


def test_fault_U22_one_doc_id_in_two_collections_says_what_to_do(tmp_path):
    with Store.create(tmp_path / "s.duckdb", 64, embedder=EMBEDDER) as store:
        sqlrag.index([Chunk("readme.md", 0, "a", collection="a")], store)
        with pytest.raises(sqlrag.InputError, match=r"give one of them another, such as 'b:readme\.md'"):
            sqlrag.index([Chunk("readme.md", 0, "b", collection="b")], store)
        sqlrag.index([Chunk("b:readme.md", 0, "b", collection="b")], store)


@pytest.mark.rest
def test_fault_U23_results_have_tags_and_a_missing_index_names_what_mends_it(tmp_path):
    path = build(tmp_path, a_md="---\ntags: [fruit]\n---\nThe mango.")
    assert [row["tags"] for row in sqlrag.hybrid_query("mango", path)] == [["fruit"]]
    with duckdb.connect(str(path)) as con:
        con.execute("DROP SCHEMA fts_main_documents CASCADE")
    with pytest.raises(sqlrag.StoreError, match=r"has no lexical index: repair\(db_path\) makes it"):
        sqlrag.hybrid_query("mango", path, strict=True)
    assert "sqlrag repair FILE" in run("search", "mango", "--strict", "--db", path).stderr
    assert run("repair", path).exit_code == 0
    assert run("search", "mango", "--strict", "--db", path).exit_code == 0


def test_fault_U25_results_say_when_and_of_which_bytes(here):
    (row,) = sqlrag.lexical_query("mango", "kb.duckdb")
    with duckdb.connect("kb.duckdb", read_only=True) as con:
        stored = con.execute("SELECT checksum FROM source_documents WHERE doc_id = 'mango.md'").fetchone()
    assert (row["checksum"],) == stored
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", row["created_at"])
    assert sqlrag.build_prompt("mango", [row]).sources[0]["checksum"] == row["checksum"]
    asked = sqlrag.answer("mango", contexts=[row], chat_model="m", base_url="http://127.0.0.1:9/v1", max_retries=0)
    assert asked.error  # nothing listens there
    assert asked.sources[0]["checksum"] == row["checksum"]


# Messages


def test_values_and_arguments_that_are_wrong_are_told_in_plain_words(here):
    assert "Value error" not in words(run("search", "mango", "--format", "xml"))
    assert "'xml' is not one of 'table', 'json', 'csv'" in words(run("search", "mango", "--format", "xml"))
    for given, shown in ((["mango.md"], "mango.md#0"), (["mango.md#1"], "mango.md#1"), ([], "guides/filters.md#2")):
        done = run("explain", *given)
        assert done.exit_code == 2
        assert words(done).endswith(f"such as: sqlrag explain 'my question' {shown}")


def test_a_pair_of_files_is_named_as_two(here):
    done = run("convert", "kb.duckdb", "vectors-m.faiss")
    size = sum((here / name).stat().st_size for name in ("vectors-m.faiss", "metadata-m.json"))
    assert re.search(rf"metadata-m\.json and vectors-m\.faiss: 2 documents, \d chunks, {size:,} bytes", done.stdout)


# Where the first try goes wrong


def failed(*arguments, code=1):
    done = run(*arguments)
    assert done.exit_code == code, (done.stdout, done.stderr)
    return words(done)


@pytest.mark.slow
def test_a_file_of_another_format_is_converted_first(here):
    for name in ("d.ragmd", "d.ragfile", "d.parquet"):
        assert run("convert", "kb.duckdb", name).exit_code == 0
        assert f"Make one of it: sqlrag convert {name} d.duckdb." in failed("search", "mango", "--db", name)
    (here / "my notes.ragmd").write_bytes((here / "d.ragmd").read_bytes())
    remedy = "sqlrag convert 'my notes.ragmd' 'my notes.duckdb'."
    assert remedy in failed("search", "mango", "--db", "my notes.ragmd")
    with pytest.raises(sqlrag.NotAStoreError, match=r"convert\('d.ragmd', 'd.duckdb'\)"):
        Store("d.ragmd")


@pytest.mark.slow
def test_what_a_build_writes_is_named_as_a_store(here):
    (here / "t.csv").write_text("id,body\n1,late\n")
    table = ["--key", "id", "--text", "body"]
    said = failed("index-rows", "t.csv", "--db", "kb.duckdb", *table, code=2)
    assert "No such option: --db. The file to write is named by -o." in said
    for name in ("pump.md", "kb.PDF", "kb.ragmd"):
        for source in (["docs"], ["t.csv", *table]):
            said = failed("build", *source, "-o", name, *HASHING, code=2)
            assert f"ends in .{name.split('.')[1]}, " in said
            assert f"{name.split('.')[0]}.duckdb" in said
            assert not (here / name).exists()
    for name in ("plain", "kb.db", "kb.v2"):
        assert run("build", "docs", "-o", name, *HASHING, "-q").exit_code == 0


def test_a_pattern_without_a_match_is_named(here):
    said = failed("build", "docs", "--pattern", "*.txt", "-o", "x.duckdb", *HASHING)
    assert (
        "No file to read in docs matches the pattern '*.txt'. 2 files were skipped: matches none of the patterns (2)."
        in said
    )
    assert "matches the pattern '*.txt', 'a*'" in failed(
        "update", "kb.duckdb", "docs", "--pattern", "*.txt", "--pattern", "a*"
    )


def test_explain_says_which_chunks_there_are(here):
    assert "Similar ones: mango.md#0." in failed("explain", "mango", "mango.md", "--db", "kb.duckdb")
    said = failed("explain", "mango.md#0", "sweet mango", "--db", "kb.duckdb")
    assert "The question comes before the id: sqlrag explain 'sweet mango' 'mango.md#0'" in said
    assert "comes before" not in failed("explain", "issue #7", "mango.md#9", "--db", "kb.duckdb")


def test_a_leg_without_the_words_says_so(here):
    done = run("search", "zebra", "--db", "kb.duckdb")
    assert re.search(r"vector #1 \(cosine [\d.-]+\), lexical -\n", done.stdout)
    assert "BM25" not in done.stdout
    assert re.search(r"lexical #1 \(BM25 \d", run("search", "mango", "--db", "kb.duckdb").stdout)


@pytest.mark.rest
@needs_offline
def test_reembed_takes_the_model_that_is_installed(here):
    offline = {"HF_HUB_OFFLINE": "1", "FASTEMBED_CACHE_PATH": str(here / "cache")}
    done = sqlrag_process("reembed", "kb.duckdb", cwd=here, **offline)
    assert done.returncode == 0, done.stderr
    assert words(done).count(f"The model is {MINILM}, which is installed") == 1
    done = sqlrag_process("reembed", "kb.duckdb", "--model", "BAAI/bge-small-en-v1.5", cwd=here, **offline)
    assert (done.returncode, "cannot provide it" in done.stderr) == (1, True)


def write_metadata(**values):
    with duckdb.connect("kb.duckdb") as con:
        con.executemany("UPDATE embedding_metadata SET value = $2 WHERE key = $1", [*values.items()])


@pytest.mark.rest
@needs_offline
@pytest.mark.filterwarnings("default")
def test_a_file_of_openvino_is_used_by_onnx_where_it_is_not_installed(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "openvino", None)  # as if it were not installed
    assert run("build", "docs", "--model", MINILM, "--overwrite").exit_code == 0
    write_metadata(embedding_provider="openvino")
    told = "is loaded by the provider 'onnx': 'openvino', by which the file was built, is not installed here"
    pip = "pip install 'sqlrag-duckdb[openvino]'"
    done = run("search", "a question that is not in the file", "--mode", "vector", "--format", "json")
    assert (done.exit_code, done.stderr.count(told), pip in done.stderr) == (0, 1, True)
    (here / "docs" / "new.md").write_text("A new page.")
    done = run("update")
    assert (done.exit_code, done.stderr.count(told), "1 added" in done.stdout) == (0, 1, True)
    findings = json.loads(run("doctor", "kb.duckdb", "--format", "json").stdout)
    assert [(one["state"], one["remedy"]) for one in findings if "its model" in one["found"]] == [("ok", pip)]
    # Its vectors are compared with the file's, as always.
    with duckdb.connect("kb.duckdb") as con:
        (stored,) = con.execute("SELECT value FROM embedding_metadata WHERE key = 'fingerprint'").fetchone()
    write_metadata(fingerprint=json.dumps([-x for x in json.loads(stored)]))
    done = run("search", "another question", "--mode", "vector")
    assert (done.exit_code, "whose vectors differ: cosine -1.000" in done.stderr) == (1, True)
    # A model that onnx does not have is missing as before.
    write_metadata(embedding_model="nowhere")
    done = run("search", "a third question", "--mode", "vector")
    assert (done.exit_code, pip in done.stderr, told in done.stderr) == (1, True, False)
    findings = json.loads(run("doctor", "kb.duckdb", "--format", "json").stdout)
    assert [(one["state"], one["remedy"]) for one in findings if "its model" in one["found"]] == [("note", pip)]


OPENING = {
    *("delete", "search", "explain", "evaluate", "ask", "prompt", "serve", "mcp", "shell", "attach-sql", "map", "info"),
    *("doctor", "convert", "merge", "publish", "push", "get-source-documents", "embed", "check", "update"),
}


@pytest.mark.slow
def test_every_command_that_opens_a_file_can_wait_for_it(here, monkeypatch):
    from sqlrag.cli import config
    from sqlrag.engines.duckdb import database

    have = {name for name, function in config.commands.items() if "wait" in inspect.signature(function).parameters}
    assert OPENING - have == set()
    assert have & {"models", "init", "completion", "conformance", "prepare-embeddings"} == set()
    monkeypatch.setenv("SQLRAG_WAIT_SECONDS", "1")
    waited = []
    seconds = settings.seconds_to_wait
    monkeypatch.setattr(database, "seconds_to_wait", lambda given: waited.append(seconds(given)) or 0)
    for arguments in (
        ["info"],
        ["search", "mango", "--mode", "lexical"],
        ["delete", "--collection", "none", "--db", "kb.duckdb"],
    ):
        waited.clear()
        assert run(*arguments, "--wait", "7").exit_code == 0
        assert {*waited} == {7.0}
        waited.clear()
        assert run(*arguments).exit_code == 0
        assert {*waited} == {1.0}
    done = run("info", "--wait", "-1")
    assert (done.exit_code, "--wait must be a number of seconds from 0 to 86400, not -1" in done.stderr) == (2, True)


@pytest.mark.slow
def test_a_command_says_how_to_wait_for_a_file(here):
    with Store("kb.duckdb", read_only=False):
        done = sqlrag_process("info", "kb.duckdb", "--wait", "0", cwd=here)
    assert done.returncode == 1
    assert "Wait until it is done (--wait 60, or SQLRAG_WAIT_SECONDS=60 in the environment), or end it" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        ("search x --limit 3", "--top-k"),
        ("search x --k 3", "--top-k"),
        ("search x -n 3", "--top-k"),
        ("search x --topk 3", "--top-k"),
        ("search x --json", "--format json"),
        ("search x --filter tag=shop", "--metadata"),
        ("search x --threshold 0.5", "--min-similarity"),
        ("build docs --exclude drafts", "--ignore"),
        ("build docs --glob *.md", "--pattern"),
        ("build docs --size 3", "--chunk-size"),
        ("ask x --model m", "--chat-model"),
        ("serve --prot 3", "--port"),
        ("reembed --dry-run", None),
        ("delete --all", None),
    ],
)
def test_an_option_of_another_program_names_ours(arguments, meant, kept):
    done = run(*arguments.split())
    assert (done.exit_code, "No such option" in done.stderr) == (2, True)
    assert re.findall(r"Did you mean (.*)\?|Possible options", words(done)) == ([meant] if meant else [])


def test_the_question_is_no_option(here):
    assert "--query. The question stands without an option." in words(run("search", "--query", "mango"))


def test_what_is_not_there_names_what_is(here):
    meant = {
        "search": "hybrid_query", "query": "hybrid_query", "ask": "answer", "build": "prepare_embeddings",
        "ingest": "prepare_embeddings", "update": "update_embeddings", "delete": "delete_documents",
    }  # fmt: skip
    for name, function in meant.items():
        # The modules of these names are there as soon as anything has imported them.
        with pytest.raises((AttributeError, TypeError), match=rf"Did you mean \W?(sqlrag\.)?{function}\b"):
            getattr(sqlrag, name)("x")
        with Store("kb.duckdb") as store, pytest.raises(AttributeError, match=rf"mean '(sqlrag\.)?{function}'"):
            getattr(store, name)("x")
        assert callable(getattr(sqlrag, function))
    with Store("kb.duckdb") as store, pytest.raises(AttributeError, match=r"'_nothing'$"):
        store._nothing()


@pytest.mark.slow
def test_delete_names_what_was_meant(here):
    done = run("delete", "mango.mb", "pump.md", "--db", "kb.duckdb")
    assert (done.exit_code, "There is no document 'mango.mb'; did you mean 'mango.md'?" in done.stderr) == (1, True)
    assert done.stdout == "1 document with 1 chunk deleted, 1 unknown\n"
    done = run("delete", "--db", "kb.duckdb")
    assert done.exit_code == 2
    assert "--checksum, --collection, --tags-any, --tags-all, --metadata or --folder" in words(done)
    assert run("delete", "mango.md", "--db", "kb.duckdb").exit_code == 0
    assert "There is no document 'mango.md'.\n" in run("delete", "mango.md", "--db", "kb.duckdb").stderr


@pytest.mark.slow
def test_the_key_of_a_row_is_taken_for_its_document(here):
    (here / "t.csv").write_text("id,body\nR00009,late\nR00007,wet\n")
    assert run("build", "t.csv", "--key", "id", "--text", "body", "-o", "kb.duckdb").exit_code == 0
    done = run("delete", "kb.duckdb", "R00009")
    assert (done.exit_code, "did you mean 't/R00009'?" in done.stderr) == (1, True), done.stderr


@pytest.mark.slow
def test_a_deletion_of_nothing_says_why(here):
    nothing = "0 documents with 0 chunks deleted, 0 unknown\n"
    for condition, said in {
        ("--collection", "nowhere"): "No chunk has the collection 'nowhere'; there is 'default'.",
        ("--tags-any", "x"): "No chunk has the tag 'x'.",
        ("--metadata", "file_nam=x"): "metadata field 'file_nam'; did you mean 'file_name', 'file_path'?",
    }.items():
        done = run("delete", "--db", "kb.duckdb", *condition)
        assert (done.exit_code, done.stdout, said in done.stderr) == (0, nothing, True), done.stderr
    (notice,) = sqlrag.delete_documents("kb.duckdb", metadata={"file_name": 3}).notices
    assert "The metadata field 'file_name' holds text such as 'mango.md'; 3 is none." in notice
    assert sqlrag.delete_documents("kb.duckdb", doc_ids="x").notices == []


@pytest.mark.slow
def test_a_file_stands_in_any_place(here):
    assert run("build", "docs", "n.duckdb", *HASHING).exit_code == 0
    assert run("build", "o.duckdb", "docs", *HASHING).exit_code == 0
    assert run("delete", "n.duckdb", "pump.md").stdout == "1 document with 1 chunk deleted, 0 unknown\n"
    with Store("o.duckdb") as store:
        assert store.get_embedding_metadata()["chunks"]["total_chunks"] == 2
    done = run("delete", "n.duckdb", "mango.md", "--db", "o.duckdb")
    assert (done.exit_code, "Two files are named" in words(done)) == (2, True)
    done = run("build", "docs", "n.duckdb", "-o", "p.duckdb")
    assert (done.exit_code, "Name one folder" in done.stderr) == (2, True)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8000", "http://127.0.0.1:8000/", "https://host/db/kb/"])
def test_a_server_is_no_file(url):
    done = run("search", "mango", "--db", url)
    assert (done.exit_code, f"{url} is a server and not a file" in done.stderr) == (2, True)
