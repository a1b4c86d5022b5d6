"""What the readers of PDF recover, in which order, how fast and in how much memory, over a folder of PDF files.

``python -m tests.bench.pdf FOLDER … [--seconds 30] [--json FILE]`` reads each file with pypdf, with pypdfium2 and as
sqlrag does, each in a process of its own, and compares them with ``pdftotext`` (poppler-utils), and with ``mutool``
(mupdf-tools) where they are installed; both only to measure. A line an engine:

- ``read``: files with any text; ``refused``, ``late`` and ``died``: those it raised on, did not end in time, or which
  ended the process;
- ``words``: the share of the words of the yardstick that it has (each as often as there), mean and median over the
  files that were ``compared``, those with five words or more there;
- ``extra``: the share of its own words that the yardstick does not have; ``order``: the share of the pairs of
  neighbouring words of the yardstick that it has; ``cpu``: seconds in all; ``MB``: by how much memory grew at most
  (both without the process that sqlrag reads in).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import pickle
import re
import resource
import select
import signal
import statistics
import subprocess
import time
import unicodedata
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from sqlrag.ingest.readers.pdf import read_pdf
from tests.bench.common import environment, markdown_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

WORD = re.compile(r"\w+")


def pypdf_pages(data: bytes) -> list[str]:
    import io
    import logging

    import pypdf

    logging.disable()
    return [page.extract_text() for page in pypdf.PdfReader(io.BytesIO(data)).pages]


def pypdfium2_pages(data: bytes) -> list[str]:
    import pypdfium2

    document = pypdfium2.PdfDocument(data)
    return [document[i].get_textpage().get_text_range() for i in range(len(document))]


def sqlrag_pages(data: bytes) -> list[str]:
    return [read_pdf(data, "a.pdf").text]


ENGINES: dict[str, Callable[[bytes], Sequence[str]]] = {
    "pypdf": pypdf_pages,
    "pypdfium2": pypdfium2_pages,
    "sqlrag": sqlrag_pages,
}

YARDSTICKS = {
    "pdftotext": ["pdftotext", "-enc", "UTF-8", "{}", "-"],
    "mutool": ["mutool", "draw", "-q", "-F", "txt", "{}"],
}


def yardstick(name: str, path: Path, seconds: float) -> str | None:
    command = [part.format(path) for part in YARDSTICKS[name]]
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except (subprocess.TimeoutExpired, FileNotFoundError):
        return None
    return done.stdout.decode("utf-8", "replace")


def measured(read: Callable[[bytes], Sequence[str]], data: bytes, seconds: float) -> dict:
    """Read in a forked process: a crash, a memory hog or an endless loop ends that process alone."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.close(out)
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            answer: dict = {"pages": list(read(data))}
        except BaseException as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:300]}
        answer["grown"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - begun
        with os.fdopen(into, "wb") as file:
            pickle.dump(answer, file)
        os._exit(0)
    os.close(into)
    received, until = b"", time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([out], [], [], max(0, until - time.monotonic()))
        block = os.read(out, 1 << 20) if ready else b""
        received += block
        if not block:
            break
    os.close(out)
    late = time.monotonic() >= until
    if late:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    answer = pickle.loads(received) if received and not late else {}
    answer["cpu"] = usage.ru_utime + usage.ru_stime
    if late:
        answer["late"] = True
    elif os.WIFSIGNALED(status):
        answer["signal"] = os.WTERMSIG(status)
    return answer


def words_of(text: str) -> list[str]:
    return WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def shared(one: Sequence, other: Sequence) -> float:
    """Return the share of the items of one that the other has, each as often as it is there."""
    return sum((Counter(one) & Counter(other)).values()) / max(1, len(one))


def compared(text: str, reference: str) -> dict[str, float]:
    own, theirs = words_of(text), words_of(reference)
    pairs, their_pairs = list(itertools.pairwise(own)), list(itertools.pairwise(theirs))
    return {
        "words": shared(theirs, own),
        "extra": 1 - shared(own, theirs) if own else 0.0,
        "order": shared(their_pairs, pairs) if their_pairs else 1.0,
    }


def line_of(engine: str, rows: list[dict], reference: str) -> list[str]:
    found = [row[engine] for row in rows]
    figures = [one[reference] for one in found if reference in one]
    if not figures:
        return []
    means = [f"{statistics.mean(one[name] for one in figures):.3f}" for name in ("words", "extra", "order")]
    return [
        *(engine, reference, str(sum(one["characters"] > 0 for one in found))),
        *(str(sum(name in one for one in found)) for name in ("error", "late", "signal")),
        *(str(len(figures)), means[0], f"{statistics.median(one['words'] for one in figures):.3f}", *means[1:]),
        f"{sum(one['cpu'] for one in found):.1f}",
        f"{max(one.get('grown', 0) for one in found) / 1024:.0f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--engines", nargs="+", default=list(ENGINES), choices=list(ENGINES))
    parser.add_argument("--json", type=Path, help="write the figures of each file to this file")
    options = parser.parse_args()
    for engine in options.engines:  # imports are not part of the measurement
        with contextlib.suppress(Exception):
            ENGINES[engine](b"%PDF-")
    rows = []
    for path in sorted(path for folder in options.folders for path in folder.rglob("*.pdf")):
        data = path.read_bytes()
        row: dict = {"path": str(path), "bytes": len(data)}
        texts = {name: yardstick(name, path, options.seconds) for name in YARDSTICKS}
        for engine in options.engines:
            found = measured(ENGINES[engine], data, options.seconds)
            text = "\n".join(found.pop("pages", ()))
            row[engine] = found | {"characters": len(text)}
            for name, reference in texts.items():
                if reference is not None and len(words_of(reference)) >= 5:
                    row[engine][name] = compared(text, reference)
        rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows))
    header = [
        "engine",
        "against",
        "read",
        "refused",
        "late",
        "died",
        "compared",
        "words",
        "median",
        "extra",
        "order",
        "cpu",
        "MB",
    ]
    lines = [line for name in YARDSTICKS for engine in options.engines if (line := line_of(engine, rows, name))]
    print(f"{len(rows)} files, {environment()}\n\n{markdown_table(header, lines)}")


if __name__ == "__main__":
    main()
