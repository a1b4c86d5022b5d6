"""What a build costs where a page is very long, where notes are many, and where a script has no blanks.

python -m tests.bench.pages --docs FOLDER --texts FOLDER [--megabytes 50] [--notes 6346]
[--only md,html,txt,notes,xquad_en,xquad_zh]

--docs is a folder of Markdown, whose pages are repeated with a number in each sentence until they fill one page;
--texts one with collections in the layout of BEIR (xquad_en/corpus.jsonl and so on), of whose sentences the notes are
made. Each row is a process of its own: the hashing embedder, all else by default. "peak" is its greatest resident
memory (VmHWM), with pandas, which pyarrow loads where it is installed; the last column is the processor time of the
stage that indexes words, by characters of the files.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

from markdown_it import MarkdownIt

from sqlrag import prepare_embeddings
from sqlrag.ingest.run import Run
from tests.bench.common import environment, markdown_table, peak_mb

if TYPE_CHECKING:
    from collections.abc import Iterator

LANGUAGES = ("en", "de", "ru", "zh")
CHARACTERS = 2_000_000  # of the notes of one language
_SENTENCE = re.compile(r"[^。.!?！？]+[。.!?！？]\s*")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


def long_page(folder: Path, docs: Path, suffix: str, size: int) -> int:
    """Write a page of about so many bytes; return its characters."""
    texts = [_FRONT_MATTER.sub("", path.read_text("utf-8")) for path in sorted(docs.rglob("*.md"))]
    # One other character makes Python's string of the page two or four times as large.
    texts = [text.encode("latin-1", "ignore").decode("latin-1") for text in texts]
    if suffix == "html":
        texts = [MarkdownIt("commonmark").enable("table").render(text) for text in texts]
    parts, done, number = [], 0, 0
    while done < size:
        for text in texts:
            parts.append(text.replace(". ", f" {number}. "))
            done += len(parts[-1].encode())
        number += 1
    page = "\n\n".join(parts)
    (folder / f"page.{suffix}").write_text(page, "utf-8")
    return len(page)


def sentences(texts: Path, language: str) -> list[str]:
    """Return the sentences of a collection."""
    lines = (texts / f"xquad_{language}" / "corpus.jsonl").read_text("utf-8").splitlines()
    return [one.strip() for line in lines for one in _SENTENCE.findall(json.loads(line)["text"])]


def notes(folder: Path, texts: Path, count: int) -> int:
    """Write notes of ten sections in four languages; return their characters."""
    chance, known = random.Random(3), {language: sentences(texts, language) for language in LANGUAGES}
    characters = 0
    for number in range(count):
        own = known[chance.choice(LANGUAGES)]
        parts = [f"# Note {number}\n"]
        for _ in range(10):
            body = " ".join(chance.choice(own) for _ in range(4))
            parts.append(f"## {chance.choice(own)[:40]}\n\n{body} [[note {chance.randrange(count)}]]\n")
        note = "\n".join(parts)
        characters += len(note)
        (folder / f"note {number}.md").write_text(note, "utf-8")
    return characters


def one_language(folder: Path, texts: Path, language: str) -> int:
    """Write pages of 6,000 characters in one language; return their characters."""
    chance, own = random.Random(1), sentences(texts, language)
    for number in range(CHARACTERS // 6000):
        (folder / f"{number}.md").write_text("".join(chance.choice(own) for _ in range(400))[:6000], "utf-8")
    return CHARACTERS // 6000 * 6000


def build(folder: Path, target: Path, chunk_size: int) -> dict[str, float]:
    """Build in this process."""
    index = [0.0]

    @contextmanager
    def timed(run: Run, stage: str) -> Iterator[None]:
        began = time.process_time()
        with as_it_is(run, stage):
            yield
        index[0] += time.process_time() - began if stage == "index" else 0

    as_it_is = Run.timed
    with mock.patch.object(Run, "timed", timed):
        built = prepare_embeddings(
            folder, target, chunk_size, "hashing-384", embedding_provider="hashing", verbose=False, max_bytes=1 << 30
        )
    if built.report.failures:
        raise SystemExit(str(built.report))
    return {"chunks": built.report.chunks, "cpu": time.process_time(), "index": index[0], "peak": peak_mb()}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--notes", type=int, default=6346)
    parser.add_argument("--only", default="md,html,txt,notes,xquad_en,xquad_zh")
    parser.add_argument("--one-run", nargs=3, metavar=("FOLDER", "FILE", "CHUNK_SIZE"), help="in this process, as JSON")
    options = parser.parse_args()
    if options.one_run:
        folder, target, chunk_size = options.one_run
        print(json.dumps(build(Path(folder), Path(target), int(chunk_size))))
        return
    rows = []
    for kind in options.only.split(","):
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "docs"
            folder.mkdir()
            if kind == "notes":
                characters = notes(folder, options.texts, options.notes)
            elif kind.startswith("xquad_"):
                characters = one_language(folder, options.texts, kind.removeprefix("xquad_"))
            else:
                characters = long_page(folder, options.docs, kind, int(options.megabytes * 1e6))
            size = sum(path.stat().st_size for path in folder.iterdir())
            command = [sys.executable, "-m", "tests.bench.pages", "--one-run", str(folder), f"{scratch}/kb.duckdb"]
            command.append("140" if kind == "notes" else "512")
            got = json.loads(subprocess.run(command, capture_output=True, encoding="utf-8", check=True).stdout)
        figures = [
            f"{got['chunks']:,}",
            f"{got['cpu']:.0f}",
            f"{got['peak']:.0f}",
            f"{got['index'] / characters * 1e6:.2f}",
        ]
        rows.append([kind, f"{size / 1e6:.1f}", *figures])
        print(rows[-1], file=sys.stderr, flush=True)
    print(environment())
    print(markdown_table(["what", "MB", "chunks", "CPU s", "peak MB", "words: CPU µs a character"], rows))


if __name__ == "__main__":
    main()
