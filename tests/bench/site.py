"""How quick a published site is in Chromium, and how much of the file it asks for.

python -m tests.bench.site --db FILE [--assets FOLDER] [--questions 132]
python -m tests.bench.site --site FOLDER [--questions 132]

FILE is a store with vectors of MiniLM, as ``latency`` makes with --folder, and is published; FOLDER was published. A
plain server on this machine serves it. Questions: those of duckdb_docs_qa and anthropic_docs with their vectors, so
that no model is loaded; each mode gets others, since the worker remembers words. "page" is from its address to the
first results by words. p50 and p95 are by the clock, CPU is the processor time of the browser for each question; twenty
before them do not count. Bytes are those of the file that the server sent: to open it, for the first question by words,
and for the first by both.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import shutil
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
from playwright.sync_api import sync_playwright

from sqlrag.adapters.publish import publish
from tests.adapters.test_search_page import CHROMIUM
from tests.bench.common import environment, markdown_table
from tests.bench.corpora import questions
from tests.support.loopback import served
from tests.support.static_files import Files

if TYPE_CHECKING:
    from collections.abc import Iterator

ASK = """async ([text, options]) => {
    const began = performance.now();
    const { results } = await store.search(text, options);
    return [performance.now() - began, results.length];
}"""

OPEN = """async (site) => {
    const { open } = await import(`${site}/sqlrag/sqlrag.js`);
    window.store = await open(`${site}/`, { model: false });
}"""

MODES: dict[str, dict[str, Any]] = {
    "words": {"mode": "lexical"},
    "meaning": {"mode": "vector"},
    "meaning, exact": {"mode": "vector", "exact": True},
    "hybrid": {},
    "hybrid, rrf": {"fusion": "rrf"},
    "hybrid, 2 of a document": {"per_document": 2},
}


@contextlib.contextmanager
def counted(what: str, sizes: dict[str, str]) -> Iterator[None]:
    """Note what the block asks the server for."""
    before = Files.sent, Files.requests
    yield
    sizes[what] = f"{(Files.sent - before[0]) / 1e6:.1f} MB, {Files.requests - before[1]} requests"


def processor_seconds() -> float:
    """Return the processor time of the browser, which is below this process."""
    total = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def measure(address: str, asked: list[tuple[str, list[float]]]) -> tuple[dict[str, str], list[list[str]]]:
    """Return the figures of a site, and a line for each mode."""
    figures: dict[str, str] = {}
    rows = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"] * (os.geteuid() == 0))
        page = browser.new_page()
        page.set_default_timeout(300_000)
        began, cpu = time.perf_counter(), processor_seconds()
        page.goto(f"{address}/site/?q=filter+by+tag&mode=words")
        page.locator("#list > li").first.wait_for()
        figures["page to first results"] = f"{time.perf_counter() - began:.1f} s, {processor_seconds() - cpu:.1f} CPU s"
        page.close()
        page = browser.new_page()
        page.set_default_timeout(300_000)
        page.goto(f"{address}/blank.html")
        with counted("to open", figures):
            page.evaluate(OPEN, f"{address}/site")
        with counted("first question by words", figures):
            page.evaluate(ASK, [asked[0][0], {"mode": "lexical"}])
        with counted("first question by both", figures):
            page.evaluate(ASK, [asked[0][0], {"vector": asked[0][1]}])
        for text, vector in asked[:20]:  # until the browser has compiled its best code
            page.evaluate(ASK, [text, {"vector": vector}])
        for place, (name, options) in enumerate(MODES.items()):
            calls = [[text, {**options, "vector": vector}] for text, vector in asked[20 + place :: len(MODES)]]
            cpu = processor_seconds()
            times = [page.evaluate(ASK, call)[0] for call in calls]
            cpu = (processor_seconds() - cpu) * 1000 / len(calls)
            p95 = statistics.quantiles(times, n=20)[18]
            rows.append([name, f"{statistics.median(times):.0f}", f"{p95:.0f}", f"{cpu:.0f}"])
        browser.close()
    return figures, rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--db", type=Path)
    parser.add_argument("--site", type=Path)
    parser.add_argument("--assets", default=os.environ.get("SQLRAG_TEST_ASSETS"), help="where npm has installed into")
    parser.add_argument("--questions", type=int, default=132, help="how many in all")
    arguments = parser.parse_args()
    texts, vectors = questions()
    step = max(1, len(texts) // arguments.questions)
    asked = [(text, vector.tolist()) for text, vector in zip(texts[::step], vectors[::step], strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.site:
            shutil.copytree(arguments.site, Path(folder) / "site")
        else:
            print(publish(arguments.db, Path(folder) / "site", assets=arguments.assets))
        (Path(folder) / "blank.html").write_text("<!doctype html><title>Blank</title><link rel='icon' href='data:,'>")
        with served(functools.partial(Files, directory=folder), threading.Event()) as address:
            figures, rows = measure(address, asked)
    print(f"{environment()}\n")
    for name, figure in figures.items():
        print(f"{name}: {figure}")
    print(f"\nMilliseconds for a question, of {len(asked)} in all:\n")
    print(markdown_table(["mode", "p50", "p95", "CPU"], rows))


if __name__ == "__main__":
    main()
