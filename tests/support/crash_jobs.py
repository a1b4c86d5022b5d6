"""Jobs that write to a store, run in processes that can be killed at any moment.

As a script it imports everything once, then forks a process for each line on its standard input: a JSON object with
``job``, ``folder`` and ``seconds``, after which the process is killed (null: it is waited for). For each it prints a
JSON object with the exit ``status`` (-9: killed) and the ``seconds`` that it ran.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import numpy as np

import sqlrag
from sqlrag.ingest import run as run_
from tests.support.helpers import HASHING

DOCUMENTS = 12
UPSERTED = 6
CHUNKS = 3
DIMENSIONS = 64
DONE = "done.txt"


def store_of(folder: Path) -> Path:
    return folder / "kb.duckdb"


def write_pages(root: Path, edition: int, pages: range = range(DOCUMENTS)) -> None:
    """Write pages of three sections each; the word of the edition stands in each section."""
    root.mkdir(exist_ok=True)
    for n in pages:
        sections = [f"# Part {part}\n\npage{n} edition{edition} part{part} common words" for part in range(CHUNKS)]
        (root / f"page{n:02}.md").write_text("\n\n".join(sections) + "\n", "utf-8")


def build(folder: Path) -> None:
    sqlrag.prepare_embeddings(folder / "docs", store_of(folder), overwrite=True, **HASHING)


def update(folder: Path) -> None:
    run_.BATCH_CHUNKS = CHUNKS  # a transaction for each document
    sqlrag.update_embeddings(folder / "docs", store_of(folder), prune=True, progress="off")


def upsert(folder: Path) -> None:
    """Write one document after the other, and note each that is finished."""
    with sqlrag.Store(store_of(folder), read_only=False) as store:
        done = os.open(folder / DONE, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for n in range(UPSERTED):
            put(store, n, edition=2)
            os.write(done, f"{n}\n".encode())


def put(store: sqlrag.Store, n: int, edition: int) -> None:
    texts = [f"page{n} edition{edition} part{part} common words" for part in range(CHUNKS + edition)]
    chunks = [sqlrag.Chunk(f"page{n}", i, text) for i, text in enumerate(texts)]
    vectors = np.ones((len(texts), DIMENSIONS)) + np.eye(DIMENSIONS)[: len(texts)] * edition
    store.upsert([sqlrag.Document(f"page{n}", "\n".join(texts))], chunks, vectors)


def compact(folder: Path) -> None:
    sqlrag.compact(store_of(folder))


def repair(folder: Path) -> None:
    sqlrag.repair(store_of(folder))


def upgrade(folder: Path) -> None:
    sqlrag.upgrade(store_of(folder))


def reembed(folder: Path) -> None:
    sqlrag.reembed(store_of(folder), "hashing-96", provider="hashing", progress="off")


JOBS = {job.__name__: job for job in (build, update, upsert, compact, repair, upgrade, reembed)}


def run_in_fork(job: str, folder: str, seconds: float | None) -> dict[str, float]:
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        status = 1
        with contextlib.suppress(BaseException):
            try:
                JOBS[job](Path(folder))
                status = 0
            except BaseException:
                traceback.print_exc()
        os._exit(status)
    if seconds is not None:
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return {"status": status, "seconds": time.monotonic() - began}


def main() -> None:
    for name in sqlrag.__all__:
        getattr(sqlrag, name)
    import pyarrow as pa
    import Stemmer  # noqa: F401
    import tqdm.auto  # noqa: F401

    pa.table({"a": [1]})
    for line in sys.stdin:
        print(json.dumps(run_in_fork(**json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
