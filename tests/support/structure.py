"""The import graph of the package, read from its sources: every import counts, at the top, in functions, for types."""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sqlrag"


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Return the files of the package by module name, such as ``sqlrag.search.store``."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(name: str, path: Path, known: dict[str, Path]) -> set[str]:
    """Return the modules of the package that a module imports, wherever the import stands."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name in known}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                outer = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
                base = ".".join([*outer[: len(outer) - node.level + 1], *([node.module] if node.module else [])])
            for alias in node.names:
                found |= {f"{base}.{alias.name}"} & known.keys() or {base} & known.keys()
    return found - {name}


def graph(package: Path = PACKAGE) -> dict[str, set[str]]:
    """Return for each module of the package the modules of it that it imports."""
    known = modules(package)
    return {name: imports(name, path, known) for name, path in known.items()}


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of modules that import each other, by Tarjan's algorithm."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(name: str) -> None:
        number[name] = lowest[name] = len(number)
        stack.append(name)
        for other in sorted(edges[name]):
            if other not in number:
                visit(other)
            if other in stack:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == number[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(edges):
        if name not in number:
            visit(name)
    return found


def floors(contributing: Path = ROOT / ".github" / "CONTRIBUTING.md") -> list[list[str]]:
    """Return the floors of the package, the lowest first, from the block of CONTRIBUTING that lists them."""
    block = contributing.read_text("utf-8").split("```floors\n", 1)[1].split("```", 1)[0]
    return [line.split("#")[0].split() for line in block.splitlines() if line.strip()]


def floor_of(name: str, order: list[list[str]]) -> int:
    """Return the number of a module's floor; the longest entry that is the module or a package around it counts.

    The package itself, ``sqlrag``, stands for its ``__init__`` alone.
    """
    inner = name.partition(".")[2] or name
    fits = [
        (len(entry), number)
        for number, entries in enumerate(order)
        for entry in entries
        if inner == entry or inner.startswith(f"{entry}.")
    ]
    if not fits:
        raise LookupError(f"{name} stands on no floor; add it to the list in CONTRIBUTING.")
    return max(fits)[1]


def upward(edges: dict[str, set[str]], order: list[list[str]]) -> list[str]:
    """Return the imports that go up, as ``module -> module``."""
    return [
        f"{name} -> {other}"
        for name, others in sorted(edges.items())
        for other in sorted(others)
        if floor_of(other, order) > floor_of(name, order)
    ]
