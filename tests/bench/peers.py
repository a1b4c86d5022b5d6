"""This package beside its peers on the same corpus, in one run of the harness that measures them.

python -m tests.bench.peers [--sizes 10000,100000] [--systems …] [--work FOLDER] [--queries 100] [--reuse] [--seconds 5]
                            [--peers-python PATH] [--python NAME=PATH …] [--figures FILE]

The harness (``../shared/bench``) has an adapter for each peer; ours are put beside them in a copy of it: ``sqlrag``
answers by SQL, ``sqlrag_memory`` from memory. Questions a second are
of ``clients.py`` here, on the same stores: threads of one process. Vectors are
hashed bags of words there, so the figures tell how fast and exact an index is, nothing of the quality of a search.
Peers run with the Python of ``--peers-python``, one of them with another by ``--python``; they must have the packages:
lancedb, sqlite-vec, apsw, tantivy, faiss-cpu, bm25s, PyStemmer, raghilda, and for the plain approach duckdb 1.5.5,
duckdb-extensions, duckdb-extension-fts and duckdb-extension-vss. Corpora stay in ``--work``; with ``--reuse`` the
peers' stores stay too and the next run with it builds only ours. One run at a time in a folder.
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

from tests.bench.clients import CLIENTS
from tests.bench.common import environment, markdown_table, write_figures

ROOT = Path(__file__).resolve().parents[2]
HARNESS = ROOT.parent / "shared" / "bench"
DOCUMENTS = ROOT.parent / "shared" / "data" / "docs"
OURS = "sqlrag"
IN_MEMORY = "sqlrag_memory"
PEERS = "duckdb_naive,lancedb_flat,lancedb_ivf_refine,sqlite_vec_fts5,raghilda,tantivy_faiss,bm25s_numpy"
REFERENCE = "bm25s_numpy"
MODES = ("hybrid", "vector", "lexical")
SEED = 7
HEADER = [
    "system",
    "hybrid p50 ms",
    "vector",
    "lexical",
    "CPU ms / hybrid",
    *(f"hybrid a second, {clients} client{'s' if clients > 1 else ''}" for clients in CLIENTS),
    "vector recall@10",
    "build s",
    "MB on disk",
    "peak MB of the query process",
    "hybrid / ours",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--systems", default=f"{OURS},{IN_MEMORY},{PEERS}")
    parser.add_argument("--peers-python", default=sys.executable, metavar="PATH")
    parser.add_argument("--python", action="append", default=[], metavar="NAME=PATH", help="for one system")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "sqlrag-peers")
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=5, help="of asking, for each number of clients")
    parser.add_argument("--timeout", type=float, default=480, help="seconds for a build")
    parser.add_argument("--reuse", action="store_true", help="keep the peers' stores, use those kept; ours is built")
    parser.add_argument("--figures", type=Path, help="write the times into this file, such as measured.json here")
    arguments = parser.parse_args()
    if not HARNESS.is_dir():
        sys.exit(f"The harness is not at {HARNESS}.")
    arguments.work = arguments.work.resolve()
    arguments.systems = arguments.systems.split(",")
    # A relative path of a virtual environment's Python must not be resolved: the link is what makes it that one.
    arguments.pythons = dict.fromkeys(arguments.systems, str(Path(arguments.peers_python).absolute()))
    arguments.pythons |= dict.fromkeys((OURS, IN_MEMORY), sys.executable)
    for pair in arguments.python:
        name, equals, path = pair.partition("=")
        if name not in arguments.pythons or not equals:
            parser.error(f"--python {pair}: write NAME=PATH, NAME one of {', '.join(arguments.pythons)}")
        arguments.pythons[name] = str(Path(path).absolute())
    print(f"{environment()}, seed {SEED}\n")
    found: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        harness = Path(folder) / "bench"
        shutil.copytree(HARNESS, harness)
        shutil.copy(Path(__file__).with_name("clients.py"), harness)
        for system in (OURS, IN_MEMORY):
            shutil.copy(Path(__file__).with_name(f"{system}_adapter.py"), harness / "adapters" / f"{system}.py")
        for size in map(int, arguments.sizes.split(",")):
            corpus = make_corpus(harness, size, arguments.work)
            results = measure(harness, corpus, arguments)
            found[str(size)] = times(results)
            print(f"## {size:,} chunks\n\n{table(results)}\n\n{remarks(results)}\n", flush=True)
    if arguments.figures:
        write_figures(arguments.figures, lambda figures: figures["peers"].update(found))


def make_corpus(harness: Path, size: int, work: Path) -> Path:
    """Return the folder of the corpus, made where it is missing; stores kept of an earlier one go."""
    corpus = work / "corpora" / str(size)
    if not (corpus / "meta.json").exists():
        for kept in (work / "stores").glob(f"{size}.*.json"):
            kept.unlink()
        command = ["make_corpus.py", "--docs", DOCUMENTS, "--n", size, "--out", corpus, "--seed", SEED]
        # What it says of its progress is no part of the report.
        subprocess.run([sys.executable, *map(str, command)], cwd=harness, check=True, stdout=sys.stderr)
    return corpus


def measure(harness: Path, corpus: Path, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Run the harness system by system, so that what is finished stays when a run is stopped."""
    # First the one whose lexical ranking the harness compares the others with.
    order = sorted(arguments.systems, key=lambda system: bool(system != REFERENCE))
    results = {system: measure_one(harness, corpus, system, arguments) for system in order}
    found = [results[system] for system in arguments.systems]
    (arguments.work / f"results_{corpus.name}.json").write_text(json.dumps(found), encoding="utf-8")
    return found


def measure_one(harness: Path, corpus: Path, system: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the harness' figures of one system, each phase run in a process of its own."""
    stores = arguments.work / "stores"
    store, kept, out = (stores / f"{corpus.name}.{system}{end}" for end in ("", ".json", ".result.json"))
    reuse = arguments.reuse and system not in (OURS, IN_MEMORY)
    # A store without the record of a finished build was left by a run that was stopped.
    if not reuse:
        kept.unlink(missing_ok=True)
    if not kept.exists():
        shutil.rmtree(store, ignore_errors=True)
    command = ["run.py", "--systems", system, "--corpus", corpus, "--work", stores, "--out", out]
    command += ["--python", f"{system}={arguments.pythons[system]}", "--queries", arguments.queries]
    command += ["--timeout", arguments.timeout, "--reference-max", 0, "--keep", *(["--reuse"] if reuse else [])]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(
        [sys.executable, *map(str, command)], cwd=harness, check=True, env=environ, stdout=subprocess.DEVNULL
    )
    (result,) = json.loads(out.read_text(encoding="utf-8"))["results"]
    if "build" not in result:
        result["build"] = {**json.loads(kept.read_text(encoding="utf-8")), "kept": True}
    if "error" not in result["build"]:
        result["clients"] = ask_at_once(harness, corpus, system, store, environ, arguments)
    if not reuse:
        shutil.rmtree(store, ignore_errors=True)
    elif "kept" not in result["build"] and "error" not in result["build"]:
        kept.write_text(json.dumps(result["build"]), encoding="utf-8")
    return dict(result)


def ask_at_once(
    harness: Path, corpus: Path, system: str, store: Path, environ: dict[str, str], arguments: argparse.Namespace
) -> dict[str, Any]:
    """Return what ``clients.py`` measures of a store, in a process of its own."""
    out = store.with_name(f"{store.name}.clients.json")
    out.unlink(missing_ok=True)
    command = [arguments.pythons[system], "clients.py", "--system", system, "--corpus", corpus, "--store", store]
    command += ["--out", out, "--queries", arguments.queries, "--seconds", arguments.seconds]
    try:
        subprocess.run(
            list(map(str, command)), cwd=harness, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            timeout=arguments.timeout,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return {"error": f"not finished in {arguments.timeout:.0f} s"}
    return dict(json.loads(out.read_text(encoding="utf-8"))) if out.exists() else {"error": "the process died"}


def table(results: list[dict[str, Any]]) -> str:
    """Return one row a system; the last column says how many times as long as ours a hybrid query takes."""
    ours = next((_mode(result, "hybrid").get("p50_ms") for result in results if result["system"] == OURS), None)
    rows = []
    for result in results:
        build, warm = result["build"], result.get("warm") or {}
        failed = build.get("error") or warm.get("error")
        if failed:
            error = str(failed).strip().splitlines()[-1]
            rows.append([str(result["system"]), f"failed: {error[:90]}", *[""] * (len(HEADER) - 2)])
            continue
        hybrid = _mode(result, "hybrid").get("p50_ms")
        rows.append(
            [
                str(result["system"]),
                *(_cell(_mode(result, mode), result["queries"]) for mode in MODES),
                f"{_mode(result, 'hybrid')['cpu_ms']:.1f}" if hybrid else "–",
                *(_rate(result["clients"].get(str(clients))) for clients in CLIENTS),
                f"{result['recall10']:.3f}" if "recall10" in result else "–",
                f"{build['build_s']:.0f}{' (kept)' if 'kept' in build else ''}",
                f"{build['disk_mb']:.0f}",
                f"{warm['query_peak_rss_mb']:.0f}",
                f"{hybrid / ours:.2f} x" if hybrid and ours else "–",
            ]
        )
    return markdown_table(HEADER, rows)


def times(results: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the milliseconds of a hybrid query by system, and how many times as long as ours that is."""
    found = {result["system"]: _mode(result, "hybrid").get("p50_ms") for result in results}
    ours = found.get(OURS)
    return {
        system: {"hybrid_ms": round(milliseconds, 1), "times": round(milliseconds / ours, 1)}
        for system, milliseconds in found.items()
        if milliseconds and ours
    }


def remarks(results: list[dict[str, Any]]) -> str:
    """Return what a reader must know to trust the table: versions, what else ran, what went wrong."""
    versions: dict[str, set[str]] = {}
    for result in results:
        for name, version in result["build"].get("versions", {}).items():
            versions.setdefault(name, set()).add(str(version))
    lines = ["Versions: " + ", ".join(f"{name} {' and '.join(sorted(versions[name]))}" for name in sorted(versions))]
    shares = []
    for result in results:
        hybrid = _mode(result, "hybrid")
        # The kernel counts in ticks of 10 ms: a share of much less than a second says nothing.
        if "p50_ms" in hybrid and hybrid["n"] * hybrid["mean_ms"] >= 500:
            shares.append(f"{result['system']} {hybrid['others_cpu_share']:.0%}")
    if shares:
        lines.append("CPU of the machine taken by other processes during the hybrid queries: " + ", ".join(shares))
    shares = [
        f"{result['system']} {found['others_cpu_share']:.0%}"
        for result in results
        if (found := result.get("clients", {}).get(str(CLIENTS[-1])))
    ]
    if shares:
        lines.append(f"The same while {CLIENTS[-1]} clients asked: " + ", ".join(shares))
    for result in results:
        clients = result.get("clients", {})
        if "error" in clients:
            lines.append(f"{result['system']}, clients: {clients['error'].strip().splitlines()[-1]}")
        lines += [
            f"{result['system']}: {found['differing']} of {found['answers']} answers to {count} clients differed"
            for count, found in clients.items()
            if count != "error" and found["differing"]
        ]
    lines += [
        f"{result['system']}, {mode}: {_mode(result, mode)['error'].strip().splitlines()[-1]}"
        for result in results
        for mode in MODES
        if "error" in _mode(result, mode)
    ]
    return "\n\n".join(lines)


def _mode(result: dict[str, Any], mode: str) -> dict[str, Any]:
    found: dict[str, Any] = (result.get("warm") or {}).get("modes", {}).get(mode, {})
    return found


def _cell(mode: dict[str, Any], queries: int) -> str:
    """Return the p50, the number of queries with it where the time for them ran out."""
    if "p50_ms" not in mode:
        return "failed" if "error" in mode else "–"
    return f"{mode['p50_ms']:.1f}" + (f" (n={mode['n']})" if mode["n"] < queries else "")


def _rate(found: dict[str, float] | None) -> str:
    """Return the questions a second, and the CPU ms of one."""
    return f"{found['qps']:.0f} ({found['cpu_ms']:.1f} CPU ms)" if found else "–"


if __name__ == "__main__":
    main()
