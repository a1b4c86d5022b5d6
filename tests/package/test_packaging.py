"""The package works from a wheel and from a checkout; the wheel holds what it needs and nothing else."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

import sqlrag
from tests.support.helpers import ROOT

# Prepares and asks where only the package itself is on the path; prints where the code and the SQL came from.
SMOKE = """
import sys
from pathlib import Path

import sqlrag
from sqlrag.engines.duckdb.schema import sql_folder

Path("docs").mkdir()
Path("docs/pump.md").write_text("# Pump\\n\\nOpen the red valve first.\\n", encoding="utf-8")
Path("docs/door.txt").write_text("Close the door.", encoding="utf-8")
built = sqlrag.prepare_embeddings(
    "docs", "kb.duckdb", embed_model_name="hashing-64", embedding_provider="hashing", verbose=False
)
assert (built.report.documents, built.report.chunks) == (2, 2), built.report
results = sqlrag.hybrid_query("red valve", built.path)
assert results[0]["node_id"] == "pump.md#0", results
assert results.notices == [], results.notices
with sqlrag.Store(built.path) as store:
    assert store.check() == []
print(Path(sqlrag.__file__).parent)
print(sql_folder())
"""


def run(*command, folder, path=None):
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command,
        cwd=folder,
        env={**env, **({"PYTHONPATH": str(path)} if path else {})},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        encoding="utf-8",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Return the wheel of this checkout."""
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT), folder=out)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def below(folder, pattern):
    return {path.relative_to(folder).as_posix() for path in folder.rglob(pattern) if path.is_file()}


def test_its_name_says_distribution_and_version(wheel):
    assert wheel.name == f"sqlrag_duckdb-{sqlrag.__version__}-py3-none-any.whl"


def test_it_holds_every_module_statement_and_page(names):
    wanted = {f"sqlrag/{name}" for name in below(ROOT / "sqlrag", "*.py")}
    wanted |= {f"sqlrag/sql/{name}" for name in [*below(ROOT / "sql", "*.sql"), "digests.txt"]}
    wanted |= {f"sqlrag/handbook/{name}" for name in below(ROOT / "data" / "handbook", "*.*")}
    conformance = ROOT / "data" / "conformance"
    wanted |= {f"sqlrag/conformance_data/{name}" for name in below(conformance, "*.*")}
    wanted |= {
        f"sqlrag/adapters/rest/page/{name}" for name in below(ROOT / "sqlrag" / "adapters" / "rest" / "page", "*.*")
    }
    wanted |= {f"sqlrag/adapters/site/{name}" for name in below(ROOT / "sqlrag" / "adapters" / "site", "*.*")}
    wanted |= {"sqlrag/py.typed", "sqlrag/explore/map.html"}
    assert {"sqlrag/sql/schema.sql", "sqlrag/handbook/guides/filters.md", "sqlrag/handbook/field-guide.pdf"} <= wanted
    assert {
        "sqlrag/adapters/rest/page/index.html",
        "sqlrag/adapters/rest/page/page.css",
        "sqlrag/adapters/rest/page/main.js",
    } <= wanted
    assert {name for name in names if ".dist-info/" not in name} == wanted


def test_sql_is_no_python_package(names):
    # A package of that name on the path would hide the module sql of JupySQL.
    assert not [
        name for name in names if name.startswith(("sql/", "tests/", "data/")) or name == "sqlrag/sql/__init__.py"
    ]


def test_its_entry_points(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
        points = configparser.ConfigParser()
        points.read_string(archive.read(name).decode())
    assert dict(points["console_scripts"]) == {"sqlrag": "sqlrag.cli:main"}
    assert set(points["sqlrag.embedders"]) == {"onnx", "openvino", "hashing", "huggingface", "ollama", "openai"}


def test_its_metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    core = {
        re.match(r"[\w-]+", line)[0].lower() for line in metadata.get_all("Requires-Dist") if "extra ==" not in line
    }
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra")) == {
        "offline", "huggingface", "ollama", "openai", "langchain", "llama-index-duckdb", "mcp", "rest", "notebook",
        "docs", "explore", "formats", "openvino", "postgres", "ray", "shell", "test", "watch",
    }  # fmt: skip
    # What the code of this version imports; and requests, which must know the chardet of that version.
    assert core == {
        "chardet", "duckdb", "fastembed", "fonttools", "jinja2", "llama-index-core", "markdown-it-py",
        "numpy", "pathspec", "pyarrow", "pypdf", "pypdfium2", "pystemmer", "pyyaml", "requests", "sentencex", "tqdm",
        "typer",
    }  # fmt: skip
    assert "sqlrag demo" in metadata.get_payload()


@pytest.mark.slow
def test_it_works_where_it_is_installed(wheel, tmp_path):
    target = tmp_path / "installed"
    run(
        sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--target", str(target), str(wheel),
        folder=tmp_path,
    )  # fmt: skip
    code, sql = run(sys.executable, "-c", SMOKE, folder=tmp_path, path=target).splitlines()
    assert (Path(code), Path(sql)) == (target / "sqlrag", target / "sqlrag" / "sql")


@pytest.mark.slow
def test_it_works_from_a_checkout(tmp_path):
    code, sql = run(sys.executable, "-c", SMOKE, folder=tmp_path, path=ROOT).splitlines()
    assert (Path(code), Path(sql)) == (ROOT / "sqlrag", ROOT / "sql")


def test_fault_S22_one_oldest_python_is_named_everywhere():
    """That every extra can be installed on it is a step of ``.ci/run``, which has the package index."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    oldest = project["requires-python"].removeprefix(">=")
    for page in ("README.md", "data/handbook/install.md"):
        assert set(re.findall(r"Python (3\.\d+) or newer", (ROOT / page).read_text("utf-8"))) == {oldest}
    assert 'python-version "$floor"' in (ROOT / ".ci" / "run").read_text("utf-8")
