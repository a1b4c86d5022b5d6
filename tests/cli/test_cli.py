"""The command line: what it prints where, its exit codes, and what it leaves behind after bad input."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import duckdb
import pytest
import typer.main
from typer.testing import CliRunner

import sqlrag
from sqlrag import Store
from sqlrag.cli import app, printing
from sqlrag.cli.demo import FILE_NAME, QUESTIONS, _is_earlier_demo, handbook_folder
from sqlrag.embedders.weights import bundle_is_installed
from sqlrag.ranking.results import RESULT_KEYS
from tests.support import vector_cache
from tests.support.helpers import ROOT, build, python, write
from tests.support.vector_cache import remembered

HASHING = ["--provider", "hashing", "--model", "hashing-64"]
USUAL = ["demo", "build", "search", "ask", "update", "serve", "info"]
COMMANDS = [name for name, one in typer.main.get_command(app).commands.items()]
PAGES = {
    "mango.md": "---\ntags: [fruit, yellow]\nyear: 2024\n---\n# Mango\n\nThe mango is a sweet fruit.\n",
    "guides/pump.md": "---\ntags: [machine]\nyear: 2023\n---\n# Pump\n\n## Repair\n\nA new seal, Größe 3.\n",
    "notes.txt": "A shopping list: mango, lychee and a pump.\n",
}


def sqlrag_process(*arguments, cwd=None, **environment):
    return subprocess.run(
        [sys.executable, "-m", "sqlrag", *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
    )


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def rows_of(*arguments):
    result = run(*arguments, "--format", "json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("docs")
    for name, text in PAGES.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return root


@pytest.fixture(scope="module")
def kb(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("kb") / "kb.duckdb"
    sqlrag.prepare_embeddings(folder, path, 200, "hashing-64", None, "hashing", progress="off")
    with Store(path, read_only=False) as store:
        store.embed_query("mango pump")
    return path


# Help and names


def test_the_help_fits_a_screen_and_names_every_command_once(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = run("--help").stdout
    assert len(shown.splitlines()) <= 24
    assert max(map(len, shown.splitlines())) < 80
    usual, _, more = shown.partition("Commands:")[2].partition("More, each with -h:")
    assert [line.split()[0] for line in usual.splitlines() if line.strip()] == USUAL
    others, _, examples = more.partition("options  ")
    named = re.findall(r"[a-z-]+", " ".join(line[16:] for line in others.splitlines()))
    hidden = ["prepare-embeddings", "index-rows", "update-rows", "hybrid-query"]
    assert sorted([*USUAL, *named, *hidden]) == sorted(COMMANDS)
    assert "--trust" in examples


@pytest.mark.every
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_examples_that_are_valid_usage(command, kb, folder, tmp_path, monkeypatch):
    shown = run(command, "-h")
    assert shown.exit_code == 0
    assert shown.stdout == run(command, "--help").stdout
    (tmp_path / "docs").symlink_to(folder)
    (tmp_path / "kb.duckdb").write_bytes(kb.read_bytes())
    monkeypatch.chdir(tmp_path)
    examples = [line.strip() for line in shown.stdout.partition("Example:\n")[2].splitlines() if line.strip()]
    assert examples
    for example in examples:
        program, *arguments = shlex.split(example.partition(" && ")[0])
        assert program == "sqlrag"
        assert arguments[0] == command
        if command not in ("conformance", "demo", "serve", "shell", "watch"):  # they have tests of their own
            assert "Usage:" not in run(*arguments).stderr, example


def test_functions_and_commands_share_their_names():
    functions = {
        name
        for name in sqlrag.__all__
        if (name.endswith("_query") and f"a{name}" in sqlrag.__all__) or name.startswith(("prepare", "get_source"))
    }
    assert {name.replace("_", "-") for name in functions} <= set(COMMANDS)


def test_version_names_the_versions():
    assert run("--version").stdout.startswith(f"sqlrag {sqlrag.__version__} (DuckDB {duckdb.__version__}, Python 3.")


@pytest.mark.slow
def test_help_and_a_query_load_no_heavy_module(kb):
    code = (
        "import sys; import sqlrag.cli as c; heavy = {'duckdb', 'numpy', 'pyarrow'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        f"sys.argv = ['sqlrag', 'hybrid-query', 'mango', '--db', {str(kb)!r}]\n"
        "try: c.main()\nexcept SystemExit as end: assert not end.code\n"
        "heavy = {'llama_index', 'pandas', 'fastembed', 'torch', 'rich', 'pypdf'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Preparing


@pytest.mark.rest
def test_prepare_reports_on_stdout_and_failures_on_stderr(folder, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.md").write_text("# A\n\nalpha")
    (tmp_path / "in" / "bad.pdf").write_bytes(b"%PDF-1.4 broken")
    (tmp_path / "in" / "e.md").write_text("")
    done = sqlrag_process("prepare-embeddings", "in", "-o", "kb.duckdb", *HASHING, cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith(f"{tmp_path / 'kb.duckdb'}: 1 document, 1 chunk (")
    assert "1 failed, 1 empty" in done.stdout
    assert done.stderr.count("bad.pdf") == 1
    assert done.stderr.count("e.md") == 1
    assert "Traceback" not in done.stderr
    assert names_in(tmp_path) == ["in", "kb.duckdb"]
    assert "bad.pdf" in run("info", tmp_path / "kb.duckdb").stdout


@pytest.mark.rest
def test_prepare_as_json_is_one_valid_value_and_quiet_says_nothing(folder, tmp_path):
    done = sqlrag_process("prepare-embeddings", folder, "-o", "kb.duckdb", *HASHING, "--format", "json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (report["documents"], report["failed"], report["path"]) == (3, 0, str(tmp_path / "kb.duckdb"))
    done = sqlrag_process("prepare-embeddings", folder, "-o", "q.duckdb", *HASHING, "--quiet", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_option_of_prepare_reaches_the_library(folder, tmp_path):
    path = tmp_path / "kb.duckdb"
    options = "--chunk-size 90 --chunk-overlap 7 --chunk-unit chars --no-markdown --no-headers --header-weight 1.5 "
    options += "--collection shop --stemmer none --pattern *.md --max-bytes 100000 --no-llama-index --quiet"
    assert run("prepare-embeddings", folder, "--output", path, *HASHING, *options.split()).exit_code == 0
    facts = rows_of("info", path)
    assert facts["chunking"] == {
        "strategy": "size-based",
        "chunk_size": 90,
        "chunk_overlap": 7,
        "chunk_unit": "chars",
        "include_headers": False,
        "header_weight": 1.5,
    }
    assert (facts["store"]["stemmer"], facts["embedding"]["model"]) == ("none", "hashing-64")
    assert [(c["collection"], c["documents"]) for c in facts["collections"]] == [("shop", 2)]  # the .txt is left out
    with Store(path) as store:
        assert store.cursor().execute("SELECT count(*) FROM documents WHERE metadata_ LIKE '%_node%'").fetchone() == (
            0,
        )


@pytest.mark.rest
@pytest.mark.model
@pytest.mark.skipif(not bundle_is_installed(), reason="needs the [offline] extra")
def test_a_lowered_chunk_size_is_noted_once(folder, tmp_path):
    model = "sentence-transformers/all-MiniLM-L6-v2"
    build = ["prepare-embeddings", folder, "-o", "kb.duckdb", "--model", model, "--overwrite"]
    done = sqlrag_process(*build, "--chunk-size", "600", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stderr.count("chunk-size 600 is lowered") == 1
    assert "note: --chunk-size 600 is lowered" in done.stderr
    build[3] = tmp_path / "kb.duckdb"
    assert "lowered" not in run(*build).stderr  # the default is no choice
    assert ".py" not in done.stderr


@pytest.mark.rest
def test_update_reports_what_it_did(tmp_path):
    root, path = tmp_path / "docs", tmp_path / "kb.duckdb"
    root.mkdir()
    for name, text in (("a.md", "alpha"), ("b.md", "beta"), ("c.md", "gamma")):
        (root / name).write_text(text)
    assert run("prepare-embeddings", root, "-o", path, *HASHING, "-q").exit_code == 0
    (root / "a.md").write_text("omega")
    (root / "b.md").rename(root / "d.md")
    (root / "c.md").unlink()
    (root / "e.md").write_text("")
    done = run("update", root, path)
    assert done.exit_code == 0
    assert done.stdout.splitlines()[0] == ("1 added, 1 changed, 0 renamed, 0 unchanged, 0 removed, 2 missing, 0 failed")
    assert "missing: c.md has no file any more, or is ignored; prune removes it" in done.stderr
    assert "empty: e.md" in done.stderr
    (root / "d.md").rename(root / "f.md")
    summary = rows_of("update", root, "--db", path, "--prune", "--chunk-size", "100", "--stemmer", "german")
    assert summary["renamed"] == []  # it was cut by another policy
    assert (summary["added"], summary["removed"]) == (["f.md"], ["b.md", "c.md", "d.md"])
    # The name of a page without a heading is its title, so that f.md is embedded anew.
    assert (summary["rechunked"], summary["reindexed"], summary["embedded"]) == (["a.md"], True, 1)
    quiet = run("update", root, path, "--quiet")
    assert (quiet.stdout, quiet.stderr.strip()) == ("", "empty: e.md: the file is empty (0 bytes, none of them text)")
    assert run("update", root, path, "--dry-run", "--quiet").stdout.startswith("1 added, 0 changed")
    check_failure(run("update", root, path, "--model", "other"), "hashing-64", "reembed")
    check_failure(run("update", tmp_path / "none", path), "does not exist")


@pytest.mark.slow
def test_delete_tells_what_went_and_what_is_unknown(kb, tmp_path):
    path = tmp_path / "kb.duckdb"
    path.write_bytes(kb.read_bytes())
    done = run("delete", "mango.md", "x' OR 1=1 --", "--db", path)
    assert (done.exit_code, done.stdout) == (1, "1 document with 1 chunk deleted, 1 unknown\n")
    assert done.stderr.startswith("deleted: mango.md\nunknown: x' OR 1=1 --\n")
    assert 'There is no document "x\' OR 1=1 --"; there is ' in done.stderr
    assert rows_of("delete", "--db", path, "--metadata", "year=2023")["deleted"] == ["guides/pump.md"]
    check_failure(run("delete", "--db", path), "Nothing says what to delete", code=2)


def test_overwrite_replaces_a_store(folder, kb, tmp_path):
    path = tmp_path / "kb.duckdb"
    path.write_bytes(kb.read_bytes())
    assert run("prepare-embeddings", folder, "-o", path, *HASHING).exit_code == 1
    only = ["--pattern", "*.txt", "--overwrite"]
    assert run("prepare-embeddings", folder, "-o", path, *HASHING, *only).exit_code == 0
    assert rows_of("info", path)["corpus"]["documents"] == 1


# Queries


@pytest.mark.parametrize("mode", ["hybrid", "vector", "lexical"])
def test_json_is_the_list_of_result_dicts(mode, kb):
    expected = getattr(sqlrag, f"{mode}_query")("mango pump", kb, top_k=2)
    assert len(expected) == 2
    assert rows_of(f"{mode}-query", "mango pump", "--db", kb, "-k", 2) == list(expected)


def test_csv_has_the_keys_of_a_result_and_json_in_its_cells(kb):
    result = run("hybrid-query", "mango", "--db", kb, "--format", "csv", "--source-docs")
    table = list(csv.DictReader(io.StringIO(result.stdout)))
    expected = sqlrag.hybrid_query("mango", kb, include_source_docs=True)
    assert tuple(table[0]) == RESULT_KEYS
    assert [row["text"] for row in table] == [row["text"] for row in expected]
    assert json.loads(table[0]["heading_path"]) == expected[0]["heading_path"]
    assert json.loads(table[0]["source_doc"])["doc_id"] == expected[0]["doc_id"]


def test_table_is_what_print_results_prints(kb, capsys):
    sqlrag.print_results(sqlrag.lexical_query("seal", kb), "seal")
    expected = capsys.readouterr().out
    assert run("lexical-query", "seal", "--db", kb).stdout == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("--tag machine", {"guides/pump.md"}),
        ("--tags-any machine --tags-any fruit", {"guides/pump.md", "mango.md"}),
        ("--tags-all fruit --tags-all yellow", {"mango.md"}),
        ("--metadata year=2023", {"guides/pump.md"}),
        ("--metadata year=2023 --metadata year=2024", set()),
        ('--metadata year={"$gte":2023} --metadata year={"$lt":2024}', {"guides/pump.md"}),
        ('--metadata year="2023"', set()),  # the text "2023" is not the number
        ("--collection default", set(PAGES)),
        ("--collection default --collection other", set(PAGES)),
        ("--collection other", set()),
    ],
)
@pytest.mark.parametrize("mode", ["hybrid", "vector", "lexical"])
def test_filters_narrow_every_search(mode, options, expected, kb):
    found = rows_of(f"{mode}-query", "mango pump", "--db", kb, "-k", 10, *options.split())
    assert {row["doc_id"] for row in found} == expected


def test_all_words_and_min_similarity(kb):
    assert {row["doc_id"] for row in rows_of("lexical-query", "mango pump", "--db", kb, "--all-words")} == {"notes.txt"}
    rows = rows_of("vector-query", "mango pump", "--db", kb)
    limit = (rows[0]["score"] + rows[1]["score"]) / 2
    assert rows_of("vector-query", "mango pump", "--db", kb, "--min-similarity", limit) == rows[:1]


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        ("hybrid-query 'mango pump'", ["k := 5", "heading_weight := 3.0"]),
        ("hybrid-query 'mango pump' -k 1 --fusion weighted --vector-weight 0.2", ["k := 1", "vector_weight := 0.2"]),
        ("hybrid-query 'mango pump' --fusion convex --alpha 0.3 --k1 0.9 --b 0.1 --heading-weight 0", ["alpha := 0.3"]),
        ("hybrid-query 'mango pump' --rrf-k 3 --tag fruit --metadata year=2024", ["rrf_k := 3.0", '{"year": 2024}']),
        # Three chunks are fewer than any pool, so that these options show in the statement only.
        ("hybrid-query 'mango pump' --exact", ["codes_pool := 2147483647"]),
        ("hybrid-query 'mango pump' --vector-top-k 7 --fts-top-k 7", [" pool := 7"]),
        ("vector-query 'mango pump' --exact --tags-all fruit --collection default", ["FROM exact_vector_query("]),
        ("vector-query 'mango pump' -k 2 --min-similarity {middle}", ["FROM vector_query(", "WHERE score >= "]),
        ("lexical-query 'mango pump' --all-words --heading-weight 5", ["conjunctive := true", "heading_weight := 5.0"]),
        ('lexical-query "the pump\'s mango" --k1 2', ["'the pump''s mango'", "k1 := 2.0"]),
    ],
)
def test_sql_gives_the_same_rows_in_duckdb(call, parts, kb):
    first, second, *_ = sqlrag.vector_query("mango pump", kb)
    command = [*shlex.split(call.replace("{middle}", str((first["score"] + second["score"]) / 2))), "--db", kb]
    shown = run(*command, "--sql")
    assert (shown.exit_code, shown.stderr) == (0, "")
    for part in parts:
        assert part in shown.stdout
    expected = [(row["node_id"], row["score"]) for row in rows_of(*command)]
    assert expected
    with duckdb.connect(str(kb), read_only=True) as con:
        assert con.sql(f"SELECT node_id, score FROM ({shown.stdout.strip().rstrip(';')})").fetchall() == expected


@pytest.mark.slow
def test_sql_says_when_the_vector_is_missing_and_embed_adds_it(kb, tmp_path):
    path = tmp_path / "kb.duckdb"
    path.write_bytes(kb.read_bytes())
    question = "it's a pump"
    shown = run("hybrid-query", question, "--db", path, "--sql")
    assert "sqlrag embed 'it'\"'\"'s a pump'" in shown.stderr
    done = run("embed", question, "--db", path)
    assert done.exit_code == 0
    assert done.stdout == shown.stdout
    assert "64 dimensions" in done.stderr
    assert run("hybrid-query", question, "--db", path, "--sql").stderr == ""
    with duckdb.connect(str(path), read_only=True) as con:
        found = [row[0] for row in con.sql(done.stdout).fetchall()]
    assert found == [row["node_id"] for row in sqlrag.hybrid_query(question, path)]


def test_sql_refuses_what_the_macro_cannot_do(kb):
    for options in (["--min-similarity", "0.1"], ["--vector-top-k", "7"]):
        assert run("hybrid-query", "mango", "--db", kb, "--sql", *options).exit_code == 2


def test_timings_and_notices_go_to_stderr(kb):
    result = run("hybrid-query", "???", "--db", kb, "--timings", "--format", "json")
    assert result.exit_code == 0
    json.loads(result.stdout)
    assert "note: The question has no words" in result.stderr
    number = r"\d+\.\d ms"
    stages = ", ".join(f"{stage} {number}" for stage in ("import", "open", "load", "embed", "search"))
    assert re.search(rf"^timings: {stages} \((\w+ {number}(, )?)+\), total {number}$", result.stderr, re.MULTILINE)
    assert "no words" not in run("hybrid-query", "???", "--db", kb).stdout


def test_the_file_may_come_from_the_environment(kb, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # where there is no file, such as that of sqlrag demo
    monkeypatch.setenv("SQLRAG_DB", str(kb))
    assert run("lexical-query", "mango").exit_code == 0
    assert run("info").exit_code == 0
    assert run("check").exit_code == 0
    monkeypatch.delenv("SQLRAG_DB")
    for command in (["lexical-query", "mango"], ["info"], ["check"], ["embed", "mango"]):
        assert run(*command).exit_code == 2


def test_source_documents_once_each_and_whole(kb):
    ids = [row["node_id"] for row in sqlrag.lexical_query("mango pump", kb)]
    assert rows_of("get-source-documents", *ids, ids[0], "--db", kb) == sqlrag.get_source_documents(ids, kb)
    shown = run("get-source-documents", "guides/pump.md#0", "--db", kb).stdout
    assert shown == f"==> guides/pump.md ({len(PAGES['guides/pump.md'])} characters) <==\n{PAGES['guides/pump.md']}\n"
    missing = run("get-source-documents", "nope.md#9", "--db", kb)
    assert missing.exit_code == 1
    assert "nope.md#9" in missing.stderr


# Looking after a file


def test_info_names_model_counts_and_size(kb):
    text = run("info", kb).stdout
    for fact in (
        "hashing-64",
        "64 dimensions",
        str(kb),
        "default (3 documents",
        "lexical in step",
        "stemmer porter",
        "to be searched there",
        " at least; resident_mb is 256",
    ):
        assert fact in text
    assert run("info", "--db", kb).stdout == text
    facts = rows_of("info", kb)
    assert (facts["corpus"]["documents"], facts["size_bytes"]) == (3, kb.stat().st_size)
    table = dict(csv.reader(io.StringIO(run("info", kb, "--format", "csv").stdout)))
    assert table["embedding.model"] == "hashing-64"


@pytest.mark.slow
def test_check_finds_what_is_broken_and_says_so_by_its_exit_code(kb, tmp_path):
    good = run("check", kb)
    assert (good.exit_code, good.stdout) == (0, f"{kb}: no problems found\n")
    assert rows_of("check", kb) == []
    path = tmp_path / "kb.duckdb"
    path.write_bytes(kb.read_bytes())
    with duckdb.connect(str(path)) as con:
        con.execute("DELETE FROM source_documents WHERE doc_id = 'mango.md'")
    bad = run("check", path)
    assert f"remedy: sqlrag repair {path}" in bad.stderr
    assert bad.exit_code == 1
    assert "chunks_without_source: 1 row" in bad.stdout
    assert "mango.md" in bad.stdout
    problems = json.loads(run("check", path, "--format", "json").stdout)
    assert "chunks_without_source" in {problem["check"] for problem in problems}


# Failures: exit code 1, one message that says what, where and the remedy, nothing left behind


def check_failure(done, *parts, code=1):
    found = done.returncode if isinstance(done, subprocess.CompletedProcess) else done.exit_code
    assert found == code, done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert "not expected" not in done.stderr
    for part in parts:
        assert part in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("arguments", "parts", "code"),
    [
        (["missing"], ["missing", "does not exist"], 1),
        (["empty"], ["empty", ".md"], 1),
        (["others"], ["others", "2 files were skipped", "hidden (1)"], 1),
        (["a.md"], ["a.md", "folder"], 2),
        (["docs", "-o", "old.duckdb"], ["old.duckdb", "--overwrite"], 1),
        (["docs", "-o", "docs"], ["docs", "is a folder", "kb.duckdb"], 1),
        (["docs", "-o", "a.md", "--overwrite"], ["a.md", "not overwritten"], 1),
        (["docs", "--model", "nonsense"], ["nonsense", "hashing-"], 2),
        (["docs", "--provider", "auto", "--model", "no-such/model"], ["no-such/model", "another provider"], 1),
        (["docs", "--provider", "nonsense"], ["nonsense", "onnx"], 2),
        (["docs", "--chunk-size", "0"], ["--chunk-size must be", "0"], 2),
        (["docs", "--chunk-size", "-5"], ["--chunk-size must be", "-5"], 2),
        (["docs", "--chunk-size", "50", "--chunk-overlap", "50"], ["--chunk-overlap must be", "50"], 2),
        (["docs", "--stemmer", "klingon"], ["klingon", "porter"], 2),
        (["docs", "--collection", "a:b"], ["collection", "a:b"], 2),
        (["docs", "--header-weight", "-1"], ["--header-weight must be", "-1"], 2),
        (["docs", "--pattern", "*.rst"], ["matches the pattern '*.rst'", "matches none of the patterns (1)"], 1),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_bad_input_of_prepare(arguments, parts, code, kb, tmp_path, monkeypatch):
    for name in ("docs", "empty", "others"):
        (tmp_path / name).mkdir()
    (tmp_path / "docs" / "a.md").write_text("# A\n\nalpha")
    (tmp_path / "others" / "a.odt").write_text("x")
    (tmp_path / "others" / ".hidden.md").write_text("x")
    (tmp_path / "a.md").write_text("# A\n\nalpha")
    (tmp_path / "old.duckdb").write_bytes(kb.read_bytes())
    output = [] if "-o" in arguments else ["-o", "kb.duckdb"]
    provider = [] if "--provider" in arguments else ["--provider", "hashing"]
    before = names_in(tmp_path)
    monkeypatch.chdir(tmp_path)
    check_failure(run("prepare-embeddings", *arguments, *output, *provider), *parts, code=code)
    assert names_in(tmp_path) == before
    assert (tmp_path / "old.duckdb").read_bytes() == kb.read_bytes()
    assert (tmp_path / "a.md").read_text() == "# A\n\nalpha"


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["hybrid-query", "x", "--top-k", "0"], ["--top-k must be", "0"]),
        (["vector-query", "x", "--top-k", "-1"], ["--top-k must be", "-1"]),
        (["lexical-query", "x", "--top-k", "0"], ["--top-k must be", "0"]),
        (["hybrid-query", "  "], ["blank"]),
        (["vector-query", ""], ["blank"]),
        (["lexical-query", "\n"], ["blank"]),
        (["embed", " "], ["blank"]),
        (["hybrid-query", "x", "--b", "2"], ["--b must be", "2"]),
        (["hybrid-query", "x", "--alpha", "7", "--fusion", "convex"], ["--alpha must be", "7"]),
        (["hybrid-query", "x", "--model", "no-such/model"], ["no-such/model"]),
        (["vector-query", "x", "--model", "no-such/model"], ["no-such/model"]),
    ],
)
def test_bad_input_of_a_query(arguments, parts, kb):
    check_failure(run(*arguments, "--db", kb), *parts, code=1 if "--model" in arguments else 2)


@pytest.mark.rest
def test_a_failure_of_the_real_process(tmp_path):
    check_failure(sqlrag_process("prepare-embeddings", "nowhere", "-o", "kb.duckdb", cwd=tmp_path), "nowhere")
    check_failure(sqlrag_process("lexical-query", "x", "--db", "kb.duckdb", cwd=tmp_path), "kb.duckdb")
    assert sqlrag_process("lexical-query").returncode == 2
    assert names_in(tmp_path) == []


READERS = [
    ["hybrid-query", "x", "--db"],
    ["embed", "x", "--db"],
    ["get-source-documents", "a#0", "--db"],
    ["info"],
    ["check"],
]


@pytest.fixture
def bad_files(tmp_path, kb):
    (tmp_path / "text.duckdb").write_text("This is no database. " * 300)
    (tmp_path / "folder.duckdb").mkdir()
    with duckdb.connect(str(tmp_path / "other.duckdb")) as con:
        con.execute("CREATE TABLE t (i INTEGER)")
    (tmp_path / "newer.duckdb").write_bytes(kb.read_bytes())
    with duckdb.connect(str(tmp_path / "newer.duckdb")) as con:
        con.execute("UPDATE embedding_metadata SET value = '99' WHERE key = 'schema_version'")
    with duckdb.connect(str(tmp_path / "published.duckdb")) as con:
        con.execute(
            "CREATE TABLE documents (node_id VARCHAR); CREATE TABLE embedding_metadata (key VARCHAR, value VARCHAR)"
        )
    return tmp_path


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_bad_files(command, bad_files):
    before = {path: path.read_bytes() for path in bad_files.iterdir() if path.is_file()}
    for name, parts in {
        "missing.duckdb": ["There is no file", "sqlrag build FOLDER -o "],
        "missing.ragfile": ["There is no file", "sqlrag build FOLDER -o missing.duckdb"],
        "text.duckdb": ["is not a DuckDB database"],
        "folder.duckdb": ["is a folder"],
        "other.duckdb": ["not a store of sqlrag"],
        "newer.duckdb": ["schema version 99"],
        "published.duckdb": ["sqlrooms-rag"],
    }.items():
        result = run(*command, bad_files / name)
        assert result.exit_code == 1, (name, result.output)
        assert result.stdout == ""
        for part in [name, *parts]:
            assert part in result.stderr
    assert {path: path.read_bytes() for path in bad_files.iterdir() if path.is_file()} == before


@pytest.mark.slow
def test_a_locked_file_is_named_with_the_process_that_holds_it(kb, folder, tmp_path):
    path = tmp_path / "kb.duckdb"
    path.write_bytes(kb.read_bytes())
    code = f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('open', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline().strip() == b"open"
        check_failure(sqlrag_process("info", path), str(path), f"process {holder.pid}", "try again")
        told = sqlrag_process("doctor", path).stdout
        assert f"Let process {holder.pid} end, or wait: --wait 60" in told
        assert "wait_seconds" not in told
        output = ["-o", path, "--overwrite", *HASHING]
        check_failure(sqlrag_process("prepare-embeddings", folder, *output), str(path), f"process {holder.pid}")
        holder.stdin.close()
    assert run("info", path).exit_code == 0


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no file has the command of a process")
def test_a_locked_file_is_named_with_the_command_that_holds_it(kb, tmp_path):
    path, script = tmp_path / "kb.duckdb", tmp_path / "sqlrag"
    path.write_bytes(kb.read_bytes())
    script.write_text(
        f"import duckdb, sys; c = duckdb.connect({str(path)!r}); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, script, "serve", path, "--write"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline().strip() == b"open"
        check_failure(sqlrag_process("info", path), f"in use by process {holder.pid}, sqlrag serve: one process")
        holder.stdin.close()


def test_a_file_that_cannot_be_written_is_not_served_for_writing(kb, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: mode != os.W_OK)  # the rights do not bind a test that root runs
    check_failure(
        run("serve", kb, "--write"), f"{kb} cannot be opened for writing: permission denied", "or leave out --write"
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-command"],
        ["hybrid-query", "x", "--no-such-option"],
        ["hybrid-query"],
        ["hybrid-query", "x", "--top-k", "many"],
        ["hybrid-query", "x", "--fusion", "best"],
        ["hybrid-query", "x", "--format", "xml"],
        ["hybrid-query", "x", "--metadata", "year"],
        ["hybrid-query", "x", "--metadata", "=2"],
        ["prepare-embeddings", "docs"],
    ],
)
def test_bad_usage_is_exit_code_2(arguments, kb, monkeypatch):
    monkeypatch.setenv("SQLRAG_DB", str(kb))
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error" in result.stderr


@pytest.mark.slow
def test_an_unexpected_error_is_one_line_and_debug_shows_the_traceback(kb, tmp_path):
    path = tmp_path / "kb.duckdb"
    path.write_bytes(kb.read_bytes())
    with duckdb.connect(str(path)) as con:
        con.execute("CREATE OR REPLACE VIEW corpus_stats AS SELECT 1 AS chunks WHERE false")
    done = sqlrag_process("info", path, "--trust")
    assert done.returncode == 1
    assert done.stderr.startswith("error: IndexError: ")
    assert "--debug" in done.stderr
    assert "Traceback" not in done.stderr
    for arguments in (["--debug", "info", path, "--trust"], ["info", path, "--trust", "--debug"]):
        done = sqlrag_process(*arguments)
        assert done.returncode == 1
        assert "Traceback" in done.stderr


# The terminal around it


def start(*arguments, cwd):
    command = [sys.executable, "-m", "sqlrag", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def interrupt_a_build(cwd, *options, signum=signal.SIGINT):
    """Build until some vectors are kept; return the exit code, and what was written to stdout and stderr."""
    (cwd / "docs").mkdir()
    page = "\n\n".join(f"## Part {n}\n\n" + f"word{n} " * 120 for n in range(60))
    for number in range(60):
        (cwd / "docs" / f"{number}.md").write_text(f"# Page {number}\n\n{page}")
    kept = cwd / "kb.duckdb.embedded"
    with start("prepare-embeddings", "docs", "-o", "kb.duckdb", *HASHING, *options, cwd=cwd) as process:
        deadline = time.monotonic() + 60
        while not (kept.exists() and kept.stat().st_size > 100_000) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert process.poll() is None, process.communicate()
        process.send_signal(signum)
        out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def said(ended):
    far = r"[\d,]+ of about [\d,]+ chunks are embedded and kept in \S*kb\.duckdb\.embedded"
    return rf"{ended}\n{far}; the same command goes on from there\.\n"


def the_next_goes_on(cwd, *options):
    done = sqlrag_process("prepare-embeddings", "docs", "-o", "kb.duckdb", *HASHING, *options, cwd=cwd)
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"note: The vectors of [\d,]+ of [\d,]+ texts, kept in kb\.duckdb\.embedded .* were used\.", done.stderr
    )
    assert names_in(cwd) == ["docs", "kb.duckdb"]


@pytest.mark.rest
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_leaves_what_was_embedded_alone_and_the_next_build_goes_on(tmp_path):
    code, out, err = interrupt_a_build(tmp_path)
    assert (code, out) == (130, "")
    assert re.fullmatch(said("Interrupted."), err)
    assert names_in(tmp_path) == ["docs", "kb.duckdb.embedded"]
    the_next_goes_on(tmp_path)


@pytest.mark.rest
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP"])
def test_fault_S10_signals_that_end_a_program_leave_what_was_embedded_alone(tmp_path, name):
    number = getattr(signal, name)
    code, out, err = interrupt_a_build(tmp_path, signum=number)
    assert (code, out) == (128 + number, "")
    assert re.fullmatch(said("Interrupted."), err)
    assert names_in(tmp_path) == ["docs", "kb.duckdb.embedded"]


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_fault_S10_the_build_after_a_kill_goes_on_and_cleans_up(tmp_path):
    assert interrupt_a_build(tmp_path, signum=signal.SIGKILL)[0] == -signal.SIGKILL
    left = names_in(tmp_path)
    assert all(name in ("docs", "kb.duckdb.embedded") or ".building" in name for name in left), left
    the_next_goes_on(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
@pytest.mark.parametrize("command", ["compact kb.duckdb", "reembed kb.duckdb --provider hashing --model hashing-96"])
def test_fault_S10_sigterm_while_a_file_is_rewritten(kb, tmp_path, command):
    (tmp_path / "kb.duckdb").write_bytes(kb.read_bytes())
    with start(*shlex.split(command), cwd=tmp_path) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob(".kb.duckdb.*.building")) and time.monotonic() < deadline:
            time.sleep(0.001)
        process.terminate()
        err = process.communicate(timeout=60)[1]
    assert process.returncode in (143, 0)  # a small file may be done before
    assert err.startswith("Interrupted.\n" if process.returncode else "")
    # What was embedded is there where it is said to be, and nothing else.
    assert names_in(tmp_path) == ["kb.duckdb"] + ["kb.duckdb.embedded"] * ("kept in" in err)


@pytest.mark.rest
@pytest.mark.skipif(os.name == "nt", reason="needs POSIX signals")
def test_ctrl_c_while_overwriting_keeps_the_old_file(kb, tmp_path):
    (tmp_path / "kb.duckdb").write_bytes(kb.read_bytes())
    assert interrupt_a_build(tmp_path, "--overwrite")[0] == 130
    assert names_in(tmp_path) == ["docs", "kb.duckdb", "kb.duckdb.embedded"]
    assert (tmp_path / "kb.duckdb").read_bytes() == kb.read_bytes()


@pytest.fixture(scope="module")
def big(tmp_path_factory):
    """Return a folder with big.duckdb, a file of one document that is more than a pipe holds."""
    folder = tmp_path_factory.mktemp("big")
    build(folder, "big.duckdb", big_txt="many words in many lines\n" * 20_000)
    return folder


@pytest.mark.rest
@pytest.mark.skipif(os.name == "nt", reason="needs a POSIX shell")
@pytest.mark.parametrize("command", ["get-source-documents big.txt#0 --db big.duckdb", "info big.duckdb", "--help"])
def test_a_reader_that_stops_early_is_no_error(command, big):
    with start(*shlex.split(command), cwd=big) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode in ((0,) if command != "--help" else (0, 1))


@pytest.mark.rest
def test_json_stays_valid_where_the_terminal_has_no_unicode(kb):
    done = sqlrag_process("hybrid-query", "Größe", "--db", kb, "--format", "json", PYTHONIOENCODING="ascii")
    assert "Größe" in json.loads(done.stdout)[0]["text"]
    done = sqlrag_process("hybrid-query", "Größe", "--db", kb, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """A file whose text is in no code page of Windows, and holds half a surrogate pair in its metadata."""
    folder = tmp_path_factory.mktemp("wide")
    (folder / "pages").mkdir()
    (folder / "pages" / "a.md").write_text('---\nodd: "\\ud800"\n---\nkiwi: Größe, Размер, 東京, €\n', "utf-8")
    path = folder / "kb.duckdb"
    sqlrag.prepare_embeddings(folder / "pages", path, 200, "hashing-64", None, "hashing", progress="off")
    return path


REDIRECTED = [
    ("lexical-query", "kiwi", "--format", "csv"),
    ("lexical-query", "kiwi", "--format", "table"),
    ("lexical-query", "kiwi", "--format", "json"),
    ("get-source-documents", "a.md#0"),
    ("prompt", "kiwi", "--mode", "lexical"),
]
# Runs commands one after the other, with a form feed after each.
IN_ORDER = """
import json, sys
from sqlrag.cli import main
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["sqlrag", *arguments]
    try: main()
    except SystemExit as end: assert not end.code, arguments
    print("\\f", end="")
"""


@pytest.mark.slow
def test_fault_T22_redirected_output_keeps_every_character(wide):
    """As one process with the standard output of a Windows redirect: what is written is UTF-8."""
    commands = json.dumps([[*arguments, "--db", str(wide)] for arguments in REDIRECTED])
    written = python(IN_ORDER, commands, PYTHONIOENCODING="cp1252", PYTHONUTF8="0", LC_ALL="C").split("\f")[:-1]
    for arguments, text in zip(REDIRECTED, written, strict=True):
        shown = json.loads(text)[0]["text"] if "json" in arguments else text
        assert "Größe, Размер, 東京, €" in shown, arguments


@pytest.mark.slow
def test_fault_T22_redirected_output_on_a_plain_locale(wide):
    environment = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = sqlrag_process("lexical-query", "東京", "--db", wide, "--format", "csv", **environment)
    assert "Größe, Размер, 東京, €" in done.stdout


class Terminal(io.TextIOWrapper):
    def isatty(self):
        return True


def test_a_terminal_gets_the_characters_that_it_can_show(monkeypatch):
    shown = Terminal(io.BytesIO(), encoding="cp1252", newline="\n")
    monkeypatch.setattr(sys, "stdout", shown)
    printing.write("Größe 東京 \ud800")
    assert shown.buffer.getvalue() == "Größe ??  \n".encode("cp1252")


@pytest.mark.slow
def test_a_question_that_is_no_unicode_is_no_traceback(kb):
    command = [sys.executable, "-m", "sqlrag", "hybrid-query", b"mango \xff", "--db", str(kb), "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["doc_id"] == "mango.md"


def test_no_document_steers_the_terminal(tmp_path):
    path = tmp_path / "kb.duckdb"
    with Store.create(path, 2) as store:
        document = sqlrag.Document("a.md", "red \x1b[31m text")
        store.upsert([document], [sqlrag.Chunk("a.md", 0, "red \x1b[31m text")], [[1.0, 0.0]])
    for command in (["lexical-query", "red", "--db", path], ["get-source-documents", "a.md#0", "--db", path]):
        assert "\x1b" not in run(*command).stdout
        assert "red" in run(*command).stdout


# The demo


def test_the_handbook_is_found():
    assert (handbook_folder() / "quick-start.md").is_file()


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.skipif(not bundle_is_installed(), reason="needs the [offline] extra")
def test_the_demo_answers_and_what_it_prints_works(tmp_path, tmp_path_factory):
    with remembered(tmp_path_factory.getbasetemp()):
        done = subprocess.run(
            [sys.executable, vector_cache.__file__, "demo"],
            cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, encoding="utf-8",
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert names_in(tmp_path) == [FILE_NAME]
    answers, _, steps = done.stdout.partition("What to try next")
    for question, page in zip(QUESTIONS, ("concepts.md#", "offline-use.md#", "reference/determinism.md#"), strict=True):
        assert page in answers.partition(question)[2].split("\n\n")[1]
    assert "_query" in steps

    lines = [line.strip() for line in steps.splitlines()]
    with duckdb.connect(str(tmp_path / FILE_NAME), read_only=True) as con:
        statements = [line for line in lines if line.endswith(";")]
        assert len(statements) == 5
        for statement in statements:
            assert con.sql(statement).fetchall(), statement
    program = "\n".join(line for line in lines if line.startswith(("from ", "print_")))
    subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
    )
    for line in lines:
        if line.startswith("sqlrag ") and "YOUR_FOLDER" not in line:
            assert sqlrag_process(*shlex.split(line)[1:], cwd=tmp_path).returncode == 0, line

    assert _is_earlier_demo(tmp_path / FILE_NAME)  # so the next demo may replace it


@pytest.mark.slow
def test_the_demo_replaces_no_file_but_its_own(kb, tmp_path):
    path = tmp_path / FILE_NAME
    path.write_bytes(kb.read_bytes())
    done = sqlrag_process("demo", "--output", tmp_path)
    assert done.returncode == 1
    assert str(path) in done.stderr
    assert path.read_bytes() == kb.read_bytes()


def test_without_its_extra_the_demo_names_the_install_line(tmp_path, monkeypatch):
    monkeypatch.setattr("sqlrag.embedders.weights.bundle_is_installed", lambda: False)
    result = run("demo", "--output", tmp_path)
    assert result.exit_code == 1
    assert "pip install 'sqlrag-duckdb[offline]'" in result.stderr
    assert names_in(tmp_path) == []


FILE_COMMANDS = ("info", "check", "repair", "compact", "upgrade", "reembed")


@pytest.mark.parametrize("command", [*FILE_COMMANDS, "update"])
def test_two_files_that_differ_are_refused(command, kb, tmp_path, monkeypatch):
    first, second = tmp_path / "first.duckdb", tmp_path / "second.duckdb"
    for path in (first, second):
        path.write_bytes(kb.read_bytes())
    before = first.read_bytes(), second.read_bytes()
    folder = [str(tmp_path)] if command == "update" else []
    done = run(command, *folder, first, "--db", second)
    assert done.exit_code == 2
    assert f"Two files are named, {first} and --db {second}." in " ".join(done.stderr.split())
    assert (first.read_bytes(), second.read_bytes()) == before
    if command in ("info", "check"):
        assert run(command, first, "--db", first).exit_code == 0
        monkeypatch.setenv("SQLRAG_DB", str(second))  # only a default
        assert str(first) in run(command, first).stdout


@pytest.mark.slow
def test_quiet_prints_nothing(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "a.md").write_text("zebra", encoding="utf-8")
    path = tmp_path / "kb.duckdb"
    for arguments in (
        ["prepare-embeddings", docs, "-o", path, *HASHING],
        ["update", docs, path],
        ["reembed", path, *HASHING],
    ):
        done = run(*arguments, "--quiet")
        assert (done.exit_code, done.stdout, done.stderr) == (0, "", ""), arguments
        # A form for programs is what was asked for.
    assert run("update", docs, path, "-q", "--format", "json").stdout.startswith("{")


def test_an_unknown_chunk_is_told_with_its_neighbours(kb):
    done = run("get-source-documents", "no-such-thing-at-all", "--db", kb)
    assert (done.exit_code, "take it from a result" in done.stderr) == (1, True)
    for wrong in ("guides/pump.md", "GUIDES/PUMP.md#0", "guides/pump.md#9", "guides/pumps.md#0", "guide/pump.md"):
        done = run("get-source-documents", wrong, "--db", kb)
        assert done.exit_code == 1
        assert f"holds no chunk '{wrong}'. Similar ones: guides/pump.md#0" in done.stderr


def test_a_bar_marks_the_passage_in_what_is_around_it(tmp_path):
    text = "Before it stands this sentence.\n\nThe *okapi* sleeps all of the day.\n\nAfter it stands that sentence."
    options = {"chunk_size": 36, "chunk_overlap": 0, "chunk_unit": "chars"}
    kb = build(tmp_path, options=options, a_md=text)
    around = ("lexical-query", "okapi", "--db", kb, "--context", "neighbours")
    lines = run(*around).stdout.splitlines()
    assert lines[-3:] == [
        "    Before it stands this sentence.",
        "  | The okapi sleeps all of the day.",
        "    After it stands that sentence.",
    ]
    assert "After" not in run(*around, "--context-chars", 40).stdout
    assert "--context-chars must be a whole number from 1 to 100000, not 0" in run(*around, "--context-chars", 0).stderr
    refused = run(*around, "--sql")
    assert refused.exit_code == 2
    assert "no counterpart of --context" in " ".join(refused.stderr.replace("│", " ").split())


class TestConvert:
    @pytest.mark.slow
    def test_there_and_back_with_the_flags_of_each_format(self, kb, tmp_path):
        ragmd, index, metadata = tmp_path / "kb.ragmd", tmp_path / "i.faiss", tmp_path / "m.json"
        assert run("convert", kb, ragmd).exit_code == 0
        assert run("convert", "--from-ragmd", ragmd, "--to-faiss", index, "--to-json", metadata).exit_code == 0
        done = run("convert", "--from-faiss", index, "--from-json", metadata, "--to-ragmd", tmp_path / "copy.ragmd")
        assert done.exit_code == 0, done.output
        assert (tmp_path / "copy.ragmd").read_bytes() == ragmd.read_bytes()
        assert run("convert", tmp_path / "copy.ragmd", tmp_path / "back.duckdb").exit_code == 0
        asked = ("hybrid-query", "mango", "--db")
        back, own = rows_of(*asked, tmp_path / "back.duckdb"), rows_of(*asked, kb)
        times = [row.pop("created_at") for row in (*back, *own)]  # when each file stored them
        assert back == own
        assert all(times)

    def test_check_and_info(self, kb, tmp_path):
        made = tmp_path / "kb.ragmd"
        run("convert", kb, made, "--tag", "fruit")
        checked = run("convert", "--check", made)
        assert (checked.exit_code, checked.stdout.splitlines()[-1]) == (0, "no problems found")
        facts = json.loads(run("info", made, "--format", "json").stdout)
        assert (facts["format"], facts["documents"], facts["model"]) == ("ragmd", 1, "hashing-64")
        assert "format       ragmd" in run("info", made).stdout
        made.write_text(made.read_text("utf-8").replace("sweet", "sour"), "utf-8")
        checked = run("convert", "--check", made)
        assert (checked.exit_code, checked.stdout) == (1, "")
        assert str(made) in checked.stderr

    @pytest.mark.parametrize(
        "arguments",
        [[], ["a.ragmd"], ["a.ragmd", "b.ragmd", "--to-ragmd", "c.ragmd"], ["--check", "a.ragmd", "b.ragmd"]],
    )
    def test_files_that_are_not_named_once(self, arguments):
        result = run("convert", *arguments)
        assert result.exit_code == 2
        assert "SOURCE" in result.stderr or "TARGET" in result.stderr

    def test_what_exists_stays_unless_asked(self, kb, tmp_path):
        (tmp_path / "kb.ragmd").write_text("mine")
        for options in ([], ["--overwrite"]):
            assert run("convert", kb, tmp_path / "kb.ragmd", *options).exit_code == 1
        assert (tmp_path / "kb.ragmd").read_text() == "mine"


class TestExplaining:
    @pytest.mark.parametrize("command", ["hybrid-query", "vector-query", "lexical-query"])
    def test_each_result_is_explained(self, kb, command):
        arguments = (command, "mango", "--db", kb, "--top-k", 2, "--explain")
        (first, *_) = json.loads(run(*arguments, "--format", "json").stdout)
        told = first["explanation"]
        assert (told["node_id"], told["score"], told["rank"]) == (first["node_id"], first["score"], 1)
        assert f"{first['node_id']}: rank 1, score" in run(*arguments).stdout
        assert run(*arguments, "--sql").exit_code == 2

    def test_one_chunk_is_explained(self, kb):
        shown = run("explain", "sweet mango", "guides/pump.md#0", "--db", kb, "--mode", "lexical", "--all-words")
        assert "not found, the leg does not have it among its candidates" in shown.stdout
        terms = run("explain", "sweet mango", "mango.md#0", "--db", kb, "--format", "csv").stdout
        assert terms.startswith("term,words,document_frequency,idf,tf,heading_tf,boost,contribution")
        unknown = run("explain", "mango", "mango.md#9", "--db", kb)
        assert unknown.exit_code == 1
        assert "no chunk 'mango.md#9'" in unknown.stderr


@pytest.mark.skipif(os.name == "nt", reason="a shell of POSIX")
class TestStreams:
    """What the program makes of streams that it was started without, or that take nothing."""

    def shell(self, tmp_path, line):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = ["sh", "-c", line.replace("sqlrag", f"{sys.executable} -m sqlrag")]
        return subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            stdin=subprocess.DEVNULL,
        )

    @pytest.mark.rest
    @pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&- <&-"])
    def test_a_closed_stream_does_not_end_a_build(self, tmp_path, closed):
        write(tmp_path / "docs", a_md="Some words.")
        line = "sqlrag build docs -o kb.duckdb --provider hashing --model hashing-64"
        assert self.shell(tmp_path, f"{line} {closed}").returncode == 0
        with Store(tmp_path / "kb.duckdb") as store:
            assert len(store.hybrid_query("words")) == 1
        assert self.shell(tmp_path, f"sqlrag search words --db no.duckdb {closed}").returncode == 1

    @pytest.mark.skipif(not os.path.exists("/dev/full"), reason="of Linux")  # noqa: PTH110
    @pytest.mark.parametrize("command", ["--help", "--version", "models", "models --format json"])
    def test_a_full_disk_under_the_output_is_told_as_such(self, tmp_path, command):
        done = self.shell(tmp_path, f"sqlrag {command} > /dev/full")
        assert done.returncode == 1
        assert done.stderr == "error: Standard output cannot be written to: No space left on device.\n"
