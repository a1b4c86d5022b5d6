"""This package beside its peers on the same corpus, in one run of the harness that measures them.

python -m tests.bench.peers [--sizes 10000,100000] [--systems …] [--peers-python PATH] [--work FOLDER] [--queries 100]

The harness (``../shared/bench``) has an adapter for each peer; ours is put beside them in a copy of it. Vectors are
hashed bags of words there, so the figures tell how fast and exact an index is, nothing of the quality of a search.
Peers run with the Python of ``--peers-python``, which must have their packages: lancedb, sqlite-vec, tantivy,
faiss-cpu, bm25s, raghilda, and for the plain approach duckdb 1.5.5, duckdb-extensions and duckdb-extension-fts. Corpora
stay in ``--work``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.common import environment, markdown_table

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT.parent / "shared" / "bench"
DOCUMENTS = ROOT.parent / "shared" / "data" / "docs"
OURS = "sqlrag"
PEERS = "duckdb_naive,lancedb_flat,lancedb_ivf_refine,sqlite_vec_fts5,raghilda,tantivy_faiss,bm25s_numpy"
SEED = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--systems", default=f"{OURS},{PEERS}")
    parser.add_argument("--peers-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "sqlrag-peers")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--timeout", type=float, default=480, help="seconds for a build")
    arguments = parser.parse_args()
    if not HARNESS.is_dir():
        sys.exit(f"The harness is not at {HARNESS}.")
    print(f"{environment()}, seed {SEED}\n")
    with tempfile.TemporaryDirectory() as folder:
        harness = Path(folder) / "bench"
        shutil.copytree(HARNESS, harness)
        shutil.copy(Path(__file__).with_name("sqlrag_adapter.py"), harness / "adapters" / f"{OURS}.py")
        for size in map(int, arguments.sizes.split(",")):
            corpus = arguments.work / "corpora" / str(size)
            if not (corpus / "meta.json").exists():
                make = [
                    sys.executable,
                    "make_corpus.py",
                    "--docs",
                    DOCUMENTS,
                    "--n",
                    size,
                    "--out",
                    corpus,
                    "--seed",
                    SEED,
                ]
                subprocess.run([str(part) for part in make], cwd=harness, check=True)
            results = measure(harness, corpus, arguments)
            print(f"## {size:,} chunks\n\n{table(results)}\n")


def measure(harness: Path, corpus: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the harness: each phase of each system in a process of its own."""
    out = arguments.work / f"results_{corpus.name}.json"
    systems = arguments.systems.split(",")
    command = [sys.executable, "run.py", "--systems", arguments.systems, "--corpus", corpus, "--out", out]
    command += ["--work", arguments.work / "stores", "--queries", arguments.queries, "--timeout", arguments.timeout]
    for system in systems:
        command += ["--python", f"{system}={sys.executable if system == OURS else arguments.peers_python}"]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([str(part) for part in command], cwd=harness, check=True, env=environ, stdout=subprocess.DEVNULL)
    found: list[dict[str, Any]] = json.loads(out.read_text())["results"]
    return sorted(found, key=lambda result: systems.index(str(result["system"])))


def table(results: list[dict[str, Any]]) -> str:
    """Return one row a system; the last column says how many times as long as ours a hybrid query takes."""
    ours = next((p50(result, "hybrid") for result in results if result["system"] == OURS), None)
    rows = []
    for result in results:
        build, warm = result.get("build") or {}, result.get("warm") or {}
        if "error" in build or "error" in warm:
            error = str(build.get("error") or warm.get("error")).strip().splitlines()[-1]
            rows.append([str(result["system"]), f"failed: {error[:90]}", *[""] * 8])
            continue
        hybrid = p50(result, "hybrid")
        rows.append(
            [
                str(result["system"]),
                *(_cell(p50(result, mode)) for mode in ("hybrid", "vector", "lexical")),
                _cell(warm.get("modes", {}).get("hybrid", {}).get("cpu_ms")),
                f"{result['recall10']:.3f}" if "recall10" in result else "–",
                f"{build['build_s']:.0f}",
                f"{build['disk_mb']:.0f}",
                f"{warm['query_peak_rss_mb']:.0f}",
                f"{hybrid / ours:.1f} x" if hybrid and ours else "–",
            ]
        )
    header = [
        "system",
        "hybrid p50 ms",
        "vector",
        "lexical",
        "CPU ms / hybrid",
        "vector recall@10",
        "build s",
        "MB on disk",
    ]
    return markdown_table([*header, "peak MB of the query process", "hybrid / ours"], rows)


def p50(result: dict[str, Any], mode: str) -> float | None:
    modes = (result.get("warm") or {}).get("modes", {})
    value = modes.get(mode, {}).get("p50_ms")
    return None if value is None else float(value)


def _cell(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


if __name__ == "__main__":
    main()
