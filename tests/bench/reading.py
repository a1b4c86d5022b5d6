"""How much of real files the readers keep, beside other programs, and how long it takes.

``python -m tests.bench.reading FOLDER`` reads every file below the folder and prints a line for each kind of file, and
one for each file that misses words: the share of the words of another program's text that ours has (pandoc; w3m for
HTML, LibreOffice for Excel and PowerPoint; each has to be on the path), and the seconds of the processor.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import tempfile
import time
import unicodedata
from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

from sqlrag.errors import DocumentError
from sqlrag.ingest.folder import find_files, read_document
from tests.bench.common import environment, markdown_table

_WORD = re.compile(r"[^\W_]+")

# How little is printed on its own.
_GOOD = 0.95


def words(text: str) -> Counter[str]:
    return Counter(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))


def other_text(path: Path) -> str | None:
    """Return the text of another program; None if there is none for the format, or it fails."""
    kind = path.suffix.lower()
    with tempfile.TemporaryDirectory() as folder:
        if kind in (".html", ".htm", ".xhtml"):
            command = ["w3m", "-dump", "-T", "text/html", "-cols", "500", "-O", "utf-8", str(path)]
        elif kind in (".docx", ".epub", ".ipynb", ".rst"):
            command = ["pandoc", "-t", "plain", "--wrap=none", str(path)]
        elif kind in (".pptx", ".xlsx"):
            to = (
                "pdf"
                if kind == ".pptx"
                else "csv:Text - txt - csv (StarCalc):9,34,76,1,,0,false,true,false,false,false,-1"
            )
            command = ["soffice", "--headless", "--convert-to", to, "--outdir", folder, str(path)]
        else:
            return None
        try:
            done = subprocess.run(command, capture_output=True, timeout=180, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        if command[0] != "soffice":
            return done.stdout.decode("utf-8", "replace")
        texts = []
        for file in sorted(Path(folder).iterdir()):
            if file.suffix == ".pdf":
                made = subprocess.run(["pdftotext", "-layout", str(file), "-"], capture_output=True, check=False)
                texts.append(made.stdout.decode("utf-8", "replace"))
            else:
                texts.append(file.read_text("utf-8", "replace"))
    return "\n".join(texts) or None


def share(ours: Counter[str], theirs: Counter[str]) -> float:
    """Return the share of their words that we have, repetitions counted."""
    return (ours & theirs).total() / theirs.total() if theirs else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--alone", action="store_true", help="Do not run other programs.")
    options = parser.parse_args()
    shares, seconds, sizes = defaultdict(list), defaultdict(list), defaultdict(list)
    failures, poor = defaultdict(list), []
    for path in find_files(options.folder)[0]:
        kind = path.suffix.lower()
        started = time.process_time()
        try:
            document = read_document(path, options.folder)
        except DocumentError as error:
            failures[kind].append(f"{error.doc_id}: {error.reason}")
            continue
        seconds[kind].append(time.process_time() - started)
        sizes[kind].append(len(document.text))
        theirs = None if options.alone else other_text(path)
        if theirs is None:
            continue
        ours, others = words(document.text), words(theirs)
        shares[kind].append(share(ours, others))
        if shares[kind][-1] < _GOOD:
            missing = ", ".join(word for word, _ in (others - ours).most_common(8))
            poor.append([str(path.relative_to(options.folder)), f"{shares[kind][-1]:.3f}", missing])
    print(environment())
    rows = [
        [
            kind,
            str(len(seconds[kind])),
            str(len(failures[kind])),
            f"{sum(sizes[kind]):,}",
            f"{sum(seconds[kind]):.2f}",
            *([f"{median(shares[kind]):.3f}", f"{min(shares[kind]):.3f}"] if shares[kind] else ["", ""]),
            f"{sum(one >= _GOOD for one in shares[kind])} of {len(shares[kind])}",
        ]
        for kind in sorted({*seconds, *failures})
    ]
    print(markdown_table(["kind", "read", "failed", "characters", "s", "median", "least", f"≥ {_GOOD}"], rows))
    print(markdown_table(["file", "share", "missing"], poor))
    for kind in sorted(failures):
        print("\n".join(failures[kind]))


if __name__ == "__main__":
    main()
