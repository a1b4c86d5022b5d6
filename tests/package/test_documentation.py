"""The handbook and the README are right: their examples run, their references resolve, they leave nothing out."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import shutil

import pytest
import yaml
from pypdf import PdfReader

import sqlrag
from sqlrag.engines.duckdb.schema import MACROS, VIEWS
from tests.support.handbook import (
    HANDBOOK,
    blocks,
    numbers,
    pages,
    pages_with_examples,
    printed_by,
    run_python,
    search_file,
    words,
)
from tests.support.helpers import ROOT, real_model
from tests.support.vector_cache import remembered

README = ROOT / "README.md"
OVERVIEW = HANDBOOK / "reference" / "overview.md"
REFERENCE = HANDBOOK / "reference"
LAYOUT = REFERENCE / "file-layout.md"

# Running the blocks.


@pytest.fixture(scope="session")
def kb(tmp_path_factory):
    return search_file(tmp_path_factory.getbasetemp())


@pytest.fixture
def folder(tmp_path, tmp_path_factory, monkeypatch):
    """Return an empty working folder that holds the handbook as ``docs``, and where a checkout has it."""
    shutil.copytree(HANDBOOK, tmp_path / "docs")
    shutil.copytree(HANDBOOK, tmp_path / "data" / "handbook")
    monkeypatch.chdir(tmp_path)
    with remembered(tmp_path_factory.getbasetemp()):
        yield tmp_path


def run_page(page):
    """Run the blocks of a page in the working folder, and compare what they print with what it says."""
    for block, printed in printed_by(page):
        where = f"{page.name}:{block.line}"
        assert words(block.text) == words(printed), f"{where} should read:\n{printed}"
        assert numbers(block.text) == pytest.approx(numbers(printed), rel=0.02), f"{where} should read:\n{printed}"


@pytest.mark.slow
class TestExamples:
    pytestmark = real_model

    @pytest.mark.every
    @pytest.mark.parametrize("page", pages_with_examples(), ids=lambda page: page.relative_to(HANDBOOK).as_posix())
    def test_the_blocks_of_a_page_run(self, page, kb, folder):
        shutil.copy(kb, folder / "kb.duckdb")
        run_page(page)

    def test_the_readme_runs(self, folder):
        run_page(README)

    def test_the_python_of_the_readme_runs_twice(self, folder):
        """A newcomer copies it again, perhaps beside a file that is there already."""
        first = next(block for block in blocks(README) if block.language == "python")
        for _ in range(2):
            assert "reading-documents.md" in run_python(first.text, "README", {})


def test_outputs_are_marked_as_such():
    """What looks printed by a block above has to be compared with it, or it is stale soon."""
    printed = re.compile(r"^┌|^Query: |^\d+ results?$|documents, \d+ chunks|^\[\(|Report\(", re.MULTILINE)
    for page in [README, *pages()]:
        for block in blocks(page):
            if block.language == "text" and "output" not in block.marks:
                assert not printed.search(block.text), f"{page.name}:{block.line} is an output that no test runs"


def test_blocks_have_known_languages_and_marks():
    for page in [README, *pages()]:
        for block in blocks(page):
            assert block.language in {"python", "sql", "bash", "html", "text"}, (page.name, block)
            assert set(block.marks) <= {"no-run", "no-rows", "output"}, (page.name, block)


def test_commands_name_the_file_that_they_are_about():
    """A folder may hold another one, such as that of the demo; only a page about sqlrag.toml has it from there."""
    command = re.compile(
        r"^sqlrag (?:update|search|[a-z]+-query|explain|ask|prompt|info|check|serve|shell|mcp)\b.*", re.M
    )
    for page in [README, *pages()]:
        if page.name == "configuration.md":
            continue
        for block in blocks(page):
            for line in command.findall(block.text if block.language == "bash" else ""):
                assert re.search(r"--db |--help|\.(?:duckdb|rag\w+)|://|\$", line), f"{page.name}: {line}"


# What the pages name.


def test_pages_that_are_named_exist():
    # Names in examples, of files that a reader might have.
    examples = {"README.md", "a/README.md", "b/README.md", "pump.md", "notes.txt"}
    files = {path.relative_to(HANDBOOK).as_posix() for path in HANDBOOK.rglob("*.*")}
    for page in [*pages(), *HANDBOOK.glob("*.txt")]:
        text = page.read_text("utf-8")
        named = set(re.findall(r"`([\w./-]+\.(?:md|txt|pdf))(?:#\d+)?`", text)) - examples
        assert named <= files, f"{page.name} names pages that do not exist: {named - files}"


def test_every_page_is_in_the_table_of_the_index():
    index = HANDBOOK / "index.md"
    table = "\n".join(line for line in index.read_text("utf-8").splitlines() if line.startswith("|"))
    files = {path.relative_to(HANDBOOK).as_posix() for path in HANDBOOK.rglob("*.*") if path.suffix != ".svg"}
    assert files - {"index.md"} - set(re.findall(r"`([^`]+)`", table)) == set()


def test_links_resolve():
    for page in [README, *pages()]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8")):
            if not re.match(r"https?://", target):
                path, _, anchor = target.partition("#")
                linked = page.parent / path if path else page
                assert linked.exists(), f"{page.name} links to {target}"
                assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}"


def test_fault_U14_pages_are_linked_where_they_are_named():
    """In prose and tables: a reader on a forge or on the site can follow every name of a page."""
    files = {path.relative_to(HANDBOOK).as_posix() for path in HANDBOOK.rglob("*.*")}
    for page in pages():
        text = re.sub(r"^```.*?^```$", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
        text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
        bare = set(re.findall(r"(?<!\[)`([\w./-]+\.(?:md|txt|pdf))`(?!\])", text)) & files
        assert bare - {page.relative_to(HANDBOOK).as_posix()} == set(), page.name


def test_the_site_has_every_page():
    """mkdocs puts them into its menu by ``nav``; ``.ci/run`` builds the site, where dead links are errors."""
    site = yaml.safe_load((ROOT / "data" / "mkdocs.yml").read_text("utf-8"))
    named = re.findall(r"[\w./-]+\.md", json.dumps(site["nav"]))
    assert sorted(named) == sorted(page.relative_to(HANDBOOK).as_posix() for page in HANDBOOK.rglob("*.md"))


def test_the_readme_is_short():
    assert len(README.read_text("utf-8").split()) <= 1_100


def anchors(page):
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


def code_names(*files):
    """Return every name that stands in code in the pages."""
    text = "\n".join(file.read_text("utf-8") for file in files)
    code = re.findall(r"`([^`\n]+)`", text) + [block.text for file in files for block in blocks(file)]
    return set(re.findall(r"\w+", " ".join(code)))


def test_every_public_name_is_in_the_reference():
    assert set(sqlrag.__all__) - code_names(*REFERENCE.glob("*.md")) == set()


@pytest.mark.every
@pytest.mark.parametrize(
    "name",
    [
        *("prepare_embeddings", "update_embeddings", "delete_documents", "index"),
        *("hybrid_query", "vector_query", "lexical_query", "answer"),
    ],
)
def test_every_argument_is_in_the_reference(name):
    arguments = set(inspect.signature(getattr(sqlrag, name)).parameters)
    assert arguments - code_names(REFERENCE / "python-api.md", HANDBOOK / "guides" / "chunking.md") == set()


def test_every_view_and_macro_is_in_the_reference():
    assert {*VIEWS, *MACROS} - code_names(LAYOUT) == set()


def test_every_table_and_column_is_in_the_reference(tmp_path):
    with sqlrag.Store.create(tmp_path / "empty.duckdb", 64) as store:
        rows = store.cursor().sql("SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal").fetchall()
        keys = store.cursor().sql("SELECT key FROM embedding_metadata").fetchall()
    tables = {"documents", "source_documents", "query_embeddings"}
    names = {table for table, _ in rows} | {column for table, column in rows if table in tables}
    assert names - code_names(LAYOUT) == set()
    assert {key for (key,) in keys} - code_names(REFERENCE / "embedding-metadata.md") == set()


def test_every_command_is_in_the_handbook():
    from typer.main import get_command

    from sqlrag import cli

    commands = set(get_command(cli.app).commands)
    assert len(commands) >= 9
    for page in (HANDBOOK / "guides" / "command-line.md", OVERVIEW):
        text = page.read_text("utf-8")
        assert {name for name in commands if not re.search(rf"`(sqlrag )?{name}\b", text)} == set(), page.name


def test_every_format_that_is_read_is_in_the_handbook():
    from sqlrag.ingest.readers import READERS

    rows = (HANDBOOK / "guides" / "reading-documents.md").read_text("utf-8")
    named = {
        ending for row in re.findall(r"^\| (`\..+?) \|", rows, re.MULTILINE) for ending in re.findall(r"`(.+?)`", row)
    }
    assert named == {suffix for reader in READERS for suffix in reader.suffixes}


def test_options_that_are_named_exist():
    from typer.main import get_command

    from sqlrag import cli

    group = get_command(cli.app)
    parameters = [*group.params, *(parameter for command in group.commands.values() for parameter in command.params)]
    known = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    others = {
        "--help",
        "--no-index",
        "--find-links",
        "--no-markdown-chunking",
        "--no-header-weighting",
        "--only",
        "--close",
    }  # of other tools, and of %sqlrag
    for page in [README, *pages(), *HANDBOOK.glob("*.txt")]:
        named = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", page.read_text("utf-8")))
        assert named <= known | others, page.name


def test_every_function_is_in_the_overview():
    functions = {name for name in sqlrag.__all__ if inspect.isfunction(getattr(sqlrag, name))}
    assert functions - code_names(OVERVIEW) == set()


def test_every_view_and_macro_of_the_shell_is_in_the_overview():
    shell = {"lexical_query", "vector_query", "hybrid_query", "more_like", "source_documents_of", "match_bm25"}
    tables = {"documents", "source_documents", "collections", "ingest_log", "ingest_failures", "query_embeddings"}
    assert {*VIEWS, *shell, *tables} - code_names(OVERVIEW) == set()


def test_what_the_pages_say_of_the_pool_is_so():
    """Handbook and code give the same numbers."""
    from sqlrag.engines.duckdb.legs import PRUNE_FROM, default_pool

    assert (default_pool(100_000, 384), default_pool(1_000_000, 384)) == (750, 2986)
    for page in (HANDBOOK / "limits.md", HANDBOOK / "guides" / "search-defaults.md"):
        text = page.read_text("utf-8")
        assert "750" in text
        assert "codes_pool :=" in text
    assert "pool := 750" in (ROOT / "sql" / "macros" / "vector_search.sql").read_text("utf-8")
    assert f"{PRUNE_FROM:,}" in text


# The handbook as a corpus.


def test_the_handbook_has_pages_of_each_format():
    count = {ending: len(list(HANDBOOK.rglob(f"*.{ending}"))) for ending in ("md", "txt", "pdf")}
    assert count["md"] >= 20
    assert (count["txt"], count["pdf"]) == (3, 2)
    assert all(len(PdfReader(path).pages) > 1 for path in HANDBOOK.glob("*.pdf"))


def test_the_questions_have_pages_that_exist():
    questions = [json.loads(line) for line in (ROOT / "data" / "questions.jsonl").read_text("utf-8").splitlines()]
    assert len(questions) >= 40
    assert len({question["id"] for question in questions}) == len(questions)
    for question in questions:
        assert question["text"].strip()
        assert question["relevant"]
        for page in question["relevant"]:
            assert (HANDBOOK / page).is_file(), question
        if "page" in question:
            assert 1 <= question["page"] <= len(PdfReader(HANDBOOK / question["relevant"][0]).pages), question


def test_the_pdf_script_makes_the_pdfs(tmp_path):
    spec = importlib.util.spec_from_file_location("make_pdfs", ROOT / "data" / "make_pdfs.py")
    make_pdfs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make_pdfs)
    make_pdfs.main(tmp_path)
    made = {path.name: [page.extract_text() for page in PdfReader(path).pages] for path in tmp_path.glob("*.pdf")}
    kept = {path.name: [page.extract_text() for page in PdfReader(path).pages] for path in HANDBOOK.glob("*.pdf")}
    assert made == kept
    assert all(text.strip() for texts in made.values() for text in texts)
