"""Figures of how the package is built: ``python tests/support/house_figures.py [CHECKOUT]``, of this one or another.

They are read from the source, but for the files that a call enters, which are counted while it runs.
"""

from __future__ import annotations

import ast
import collections
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.structure import cycles, floors, graph, modules, upward  # noqa: E402

# The options of a search, with both names where there are two.
OPTION_NAMES = frozenset(
    (
        *("mode", "top_k", "fusion", "alpha", "vector_weight", "rrf_k", "rrf_weights", "vector_top_k", "lexical_top_k"),
        *("fts_top_k", "collection", "tags_any", "tags_all", "metadata", "k1", "b", "heading_weight", "fields"),
        *("query_vector", "exact", "codes_pool", "min_similarity", "feedback", "feedback_weight", "expansion"),
        *("syntax", "conjunctive", "include_source_docs", "model_name", "strict"),
    )
)
REPEATED_FROM = 5

# Runs in a process of its own, in the checkout that is looked at.
_ENTERED = """
import json, sys, tempfile, threading
from pathlib import Path
import sqlrag

package, legs = str(Path(sqlrag.__file__).parent), {"vector_leg"}
files, stations, watching = set(), [], [False]

def look(frame, event, _):
    code = frame.f_code
    if not watching[0] or event != "call" or not code.co_filename.startswith(package) or code.co_name == "<module>":
        return
    files.add(code.co_filename)
    if code.co_name in legs and not stations:
        above = frame.f_back
        while above is not None:
            own = above.f_code
            if own.co_filename.startswith(package) and not own.co_name.startswith("<"):
                stations.append(own.co_name)
            above = above.f_back

def entered(work):
    files.clear()
    stations.clear()
    work()  # once unwatched, so that what is loaded or cached does not count
    watching[0] = True
    try:
        work()
    finally:
        watching[0] = False
    return len(files)

threading.setprofile(look)
sys.setprofile(look)
folder = Path(tempfile.mkdtemp())
(folder / "docs").mkdir()
(folder / "docs" / "a.md").write_text("# A\\n\\nHow to filter by tag.\\n")
(folder / "docs" / "b.txt").write_text("plain words\\n")
kb = folder / "kb.duckdb"
sqlrag.prepare_embeddings(folder / "docs", kb, embedding_provider="hashing", verbose=False)
found = {"hybrid_query(path)": entered(lambda: sqlrag.hybrid_query("filter tag", kb))}
found["stations to the first leg"] = len(stations) - 1  # without hybrid_query itself
with sqlrag.Store(kb) as store:
    found["an open store"] = entered(lambda: store.hybrid_query("filter tag"))
number = iter(range(9))

def add():
    (folder / "docs" / f"new{next(number)}.md").write_text("# New\\n\\nnew text\\n")
    sqlrag.update_embeddings(folder / "docs", kb)

found["one new document"] = entered(add)
from fastapi.testclient import TestClient
from sqlrag.adapters.rest import create_app

with TestClient(create_app(kb), base_url="http://localhost") as client:
    asked = {"query_text": "filter tag"}
    found["POST /hybrid_query"] = entered(lambda: client.post("/hybrid_query", json=asked).raise_for_status())
sys.setprofile(None)
print(json.dumps(found))
"""


def repeated_options(folder: Path) -> dict[str, int]:
    """Return by place how many names of search options a signature or call holds, where it holds five or more."""
    found = {}
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = set(_names(node)) & OPTION_NAMES
            if len(names) >= REPEATED_FROM:
                found[f"{path.relative_to(folder)}:{node.lineno}"] = len(names)  # type: ignore[attr-defined]
    return found


def _names(node: ast.AST) -> list[str]:
    """Return the parameters of a function, or the keywords of a call and the plain names that it passes by place."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]
    if isinstance(node, ast.Call):
        by_place = [one.id for one in node.args if isinstance(one, ast.Name)]
        return [*by_place, *(keyword.arg for keyword in node.keywords if keyword.arg)]
    return []


def header_lines(path: Path) -> int:
    """Return how many lines a module takes before its first statement that is neither docstring nor import."""
    text = path.read_text("utf-8")
    body = ast.parse(text).body
    for place, node in enumerate(body):
        is_docstring = place == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not (is_docstring or is_typing or isinstance(node, (ast.Import, ast.ImportFrom))):
            return min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) - 1
    return len(text.splitlines())


def figures(checkout: Path) -> dict[str, int]:
    """Return the figures of a checkout by what they count."""
    package = checkout / "sqlrag"
    files = modules(package)
    names = [path.stem for path in files.values() if path.stem not in ("__init__", "__main__")]
    edges = graph(package)
    found = {
        "Python files": len(files),
        "lines": sum(len(path.read_text("utf-8").splitlines()) for path in files.values()),
        "header lines (docstring, imports)": sum(map(header_lines, files.values())),
        "slots that repeat names of search options": sum(repeated_options(package).values()),
        "module names in -ing": sum(name.endswith("ing") for name in names),
        "base names used more than once": sum(count > 1 for count in collections.Counter(names).values()),
        "modules in import cycles": sum(map(len, cycles(edges))),
    }
    contributing = checkout / ".github" / "CONTRIBUTING.md"
    if "```floors\n" in contributing.read_text("utf-8"):
        found["upward imports"] = len(upward(edges, floors(contributing)))
    ran = subprocess.run([sys.executable, "-c", _ENTERED], cwd=checkout, stdout=subprocess.PIPE, text=True, check=True)
    entered = json.loads(ran.stdout.splitlines()[-1])
    return found | {f"files entered: {name}" if "stations" not in name else name: n for name, n in entered.items()}


def main(arguments: list[str]) -> None:
    """Print the figures of the checkout that is named, or of this one."""
    for name, count in figures(Path(arguments[0]).resolve() if arguments else ROOT).items():
        print(f"{count:7,}  {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
