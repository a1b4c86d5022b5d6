"""What the measurements share: the collections beside the project, and the lines that name machine and versions."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

import sqlrag

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
MINILM = "sentence-transformers/all-MiniLM-L6-v2"

# The figures of which README and handbook tell, as the benches write them; tests/package/test_figures.py compares.
FIGURES = Path(__file__).with_name("measured.json")


def environment() -> str:
    """Return one line that says where the figures come from."""
    return (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python {platform.python_version()}, "
        f"DuckDB {duckdb.__version__}, numpy {np.__version__}, sqlrag {sqlrag.__version__}"
    )


def peak_mb() -> float:
    """Return the greatest resident memory of this process so far, in MB (Linux)."""
    return _status_mb("VmHWM")


def resident_mb() -> float:
    """Return the resident memory of this process, in MB (Linux)."""
    return _status_mb("VmRSS")


def _status_mb(key: str) -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) * 1.024e-3 for line in lines if line.startswith(key))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def read_qrels(path: Path) -> list[tuple[str, str, int]]:
    rows = [line.split("\t") for line in path.read_text(encoding="utf-8").splitlines()[1:]]
    return [(query, document, int(relevance)) for query, document, relevance in rows]


def markdown_table(header: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def write_figures(path: Path, change: Callable[[Any], object]) -> None:
    """Change the figures of a file, with the day and the versions of today; the texts that tell of them follow."""
    figures = json.loads(path.read_text("utf-8"))
    change(figures)
    figures["date"] = dt.datetime.now(dt.UTC).date().isoformat()
    figures["versions"] = f"DuckDB {duckdb.__version__}, sqlrag {sqlrag.__version__}"
    path.write_text(json.dumps(figures, indent=1) + "\n", "utf-8")
