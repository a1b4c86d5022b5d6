"""Kills jobs that write, and lets their disk fail: at random moments and at every kind of call that changes a file.

python tests/bench/kills.py [--seconds 60 | --tries 500 | --sweep 2] [--seed 0] [--jobs update,add] [--modes torn]

Modes: "time" is SIGKILL after a random time; "before", "after" and "torn" are SIGKILL before, after and in the middle
of the n-th call; "power_all" and "power_some" besides lose what was not flushed to disk, all of it or a random half;
"nospace" is a full disk from the n-th call on, "ioerr" one call that fails. ``--sweep`` takes every n in turn, with so
many seeds each, in place of random ones.

After each the file has to be sound, hold what it held before or what it holds afterwards, document by document where
the job works document by document, and the next run has to finish the work and leave nothing beside the files. A job
that embeds may have kept its vectors until then, no other one. Prints JSON: the tries, kills and outcomes by job and
mode, and every failure. Needs Linux and gcc.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support import shim

if shim.missing():
    print(json.dumps({"skipped": shim.missing()}))
    sys.exit(0)
shim.preload()

import numpy as np  # noqa: E402 - with the shim

import sqlrag  # noqa: E402
from sqlrag.errors import StoreError  # noqa: E402
from sqlrag.ingest import run as ingest_run  # noqa: E402

HASHING = {"embedding_provider": "hashing", "embed_model_name": "hashing-64", "progress": "off"}
PAGES = 10
HANG_SECONDS = 300


def page(n, edition):
    parts = range(1 + (n + edition) % 4)
    return "\n\n".join(f"# Part {p}\n\nword{n} edition{edition} part{p} common salt {n * edition * p}" for p in parts)


def write_pages(folder, edition, numbers):
    (folder / "docs").mkdir(exist_ok=True)
    for n in numbers:
        (folder / "docs" / f"p{n:02}.md").write_text(page(n, edition) + "\n")


# The jobs. Each works on the file kb.duckdb of a folder.


def build(folder):
    sqlrag.prepare_embeddings(folder / "docs", folder / "kb.duckdb", overwrite=True, **HASHING)


def rebuild(folder):
    build(folder)


def update(folder):
    ingest_run.BATCH_CHUNKS = 6  # several transactions
    sqlrag.update_embeddings(folder / "docs", folder / "kb.duckdb", prune=True, progress="off")


def add(folder):
    sqlrag.add_documents({f"p{n:02}.md": page(n, 2).encode() for n in range(0, PAGES, 2)}, folder / "kb.duckdb")


def delete(folder):
    sqlrag.delete_documents(folder / "kb.duckdb", doc_ids=[f"p{n:02}.md" for n in range(0, PAGES, 3)])


def compact(folder):
    sqlrag.compact(folder / "kb.duckdb")


def reembed(folder):
    sqlrag.reembed(folder / "kb.duckdb", "hashing-96", provider="hashing", progress="off")


def map_(folder):
    sqlrag.corpus_map(folder / "kb.duckdb")


def import_(folder):
    sqlrag.import_ragmd(folder / "in.ragmd", folder / "kb.duckdb")


def _export(folder):
    sqlrag.export_ragmd(folder / "kb.duckdb", folder / "in.ragmd")


def ragmd(folder):
    sqlrag.export_ragmd(folder / "kb.duckdb", folder / "out.ragmd", overwrite=True)


def ragfile(folder):
    sqlrag.export_ragfile(folder / "kb.duckdb", folder / "out.rag", overwrite=True)


def parquet(folder):
    sqlrag.export_parquet(folder / "kb.duckdb", folder / "out.parquet", overwrite=True)


def faiss(folder):
    sqlrag.export_faiss_json(folder / "kb.duckdb", folder / "vectors-out.faiss", overwrite=True)


_ALL = (build, rebuild, update, add, delete, compact, reembed, map_, import_, ragmd, ragfile, parquet, faiss)

JOBS = {job.__name__.removesuffix("_"): job for job in _ALL}

EMBEDDING = ("build", "rebuild", "reembed")  # they keep what they have embedded until they have succeeded

OUTPUTS = {"ragmd": "out.ragmd", "ragfile": "out.rag", "parquet": "out.parquet", "faiss": "vectors-out.faiss"}

BY_DOCUMENT = ("update", "add", "delete")  # a kill may leave some documents old and some new


def start(job, folder):
    """Make the folder as it is before the job."""
    folder.mkdir(parents=True)
    write_pages(folder, 1, range(PAGES))
    if job == "build":
        return
    if job == "import":
        write_pages(folder, 2, range(0, PAGES, 2))
        done(fork(build, folder))
        done(fork(_export, folder))
        write_pages(folder, 1, range(PAGES))
    done(fork(build, folder))
    if job in ("update", "rebuild"):
        write_pages(folder, 2, [*range(0, PAGES, 2), *range(PAGES, PAGES + 4)])
        (folder / "docs" / "p01.md").unlink()
        (folder / "docs" / "p03.md").unlink()
    if job in OUTPUTS:
        done(fork(JOBS[job], folder))
        write_pages(folder, 2, range(0, PAGES, 2))
        done(fork(update, folder))


# What is there.


def store_state(folder):
    """Return what the file holds, document by document; it has to be sound, and whole in both legs."""
    path = folder / "kb.duckdb"
    if not path.exists():
        return None
    # A log that is left is documented, until the next opening for writing.
    found = [str(problem) for problem in sqlrag.check(path) if problem.check != "log_left_over"]
    assert not found, f"check: {found}"
    with sqlrag.Store(path) as store:
        con = store.cursor()
        rows = con.execute(
            "SELECT doc_id, chunk_index, text, embedding::FLOAT[] FROM documents ORDER BY doc_id, chunk_index"
        ).fetchall()
        sources = dict(con.execute("SELECT doc_id, text FROM source_documents ORDER BY doc_id").fetchall())
        (places,) = con.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'map_points'").fetchone()
        words = store.lexical_query("common", top_k=500)
        vectors = store.vector_query(query_vector=np.ones(store.dimensions), top_k=500)
        assert len(words) == len(vectors) == len(rows), f"{len(words)} words, {len(vectors)} vectors, {len(rows)} rows"
    chunks = {}
    for doc_id, *row in rows:
        chunks.setdefault(doc_id, []).append(row)
    assert sorted(chunks) == sorted(doc_id for doc_id, text in sources.items() if text.strip()), (
        "a document is not whole"
    )
    return {doc_id: digest([chunks[doc_id], sources[doc_id]]) for doc_id in chunks} | {"": str(places)}


def output_state(folder, job):
    """Return what the exported file holds; it has to be sound."""
    output = folder / OUTPUTS[job]
    if not output.exists():
        return None
    sqlrag.verify_file(output)
    with tempfile.TemporaryDirectory() as other:
        sqlrag.convert(output, Path(other) / "back.duckdb")
        with sqlrag.Store(Path(other) / "back.duckdb") as store:
            return digest(store.cursor().execute("SELECT node_id, text FROM documents ORDER BY node_id").fetchall())


def state(folder, job):
    return output_state(folder, job) if job in OUTPUTS else store_state(folder)


def digest(value):
    return hashlib.sha256(repr(value).encode()).hexdigest()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def aftermath(folder, job):
    """Return what is there, and what is there after the next run, with the names of the files."""
    now = state(folder, job)
    JOBS[job](folder)
    return now, state(folder, job), names(folder)


# Processes.


def fork(function, *arguments, kill_after=None, armed=None):
    """Run a function in a process of its own; return its exit status, its seconds and what it returned or raised."""
    reader, writer = os.pipe()
    began = time.monotonic()
    child = os.fork()
    if not child:
        os.close(reader)
        status = 1
        if armed:
            SHIM.arm(*armed)
        try:
            result = function(*arguments)
            status = 0
        except BaseException as error:
            known = isinstance(error, StoreError)
            said, trace = f"{type(error).__name__}: {error}"[:600], traceback.format_exc()[-1500:]
            result = {"known": known, "said": said} | ({} if known else {"trace": trace})
        calls = SHIM.disarm()
        os.write(writer, json.dumps([result, calls], default=str).encode())
        os._exit(status)
    os.close(writer)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    data, hangs = b"", False
    while True:
        if not select.select([reader], [], [], HANG_SECONDS)[0]:
            hangs = True
            os.kill(child, signal.SIGKILL)
        part = b"" if hangs else os.read(reader, 1 << 20)
        if not part:
            break
        data += part
    os.close(reader)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return ("hang" if hangs else status), time.monotonic() - began, json.loads(data) if data else [None, 0]


def done(outcome):
    assert outcome[0] == 0, outcome
    return outcome[2][0]


class Base:
    """A job: the folder before it, what it holds before and after, its seconds and its calls."""

    def __init__(self, job, folder):
        self.job, self.before = job, folder / f"start-{job}"
        start(job, self.before)
        self.old = done(fork(state, self.before, job))
        after = folder / f"done-{job}"
        shutil.copytree(self.before, after)
        outcome = fork(JOBS[job], after, armed=("time", 0, after))
        done(outcome)
        self.seconds, self.calls = outcome[1], outcome[2][1]
        self.new, self.names = done(fork(state, after, job)), names(after)

    def is_between(self, now):
        """Whether each document is the old or the new one."""
        if self.job not in BY_DOCUMENT or now is None:
            return False
        documents = {*self.old, *self.new}
        return all(now.get(one) in (self.old.get(one), self.new.get(one)) for one in documents)


def attempt(base, mode, call, seed, moment, folder):
    """Return how a try ended, whether the process was killed, and what was wrong with the outcome."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base.before, folder)
    how = {"kill_after": moment} if mode == "time" else {"armed": (mode, call, folder, seed)}
    status, _, (result, _) = fork(JOBS[base.job], folder, **how)
    if status == "hang":
        return "hang", False, ["it hangs"]
    wrong, disk = [], mode in ("nospace", "ioerr")
    if status not in (0, 1, -signal.SIGKILL):
        wrong.append(f"it crashed with signal {-status}")
    if status == 1 and not (disk and result["known"]):
        wrong.append(f"it raised {result['said']} {result.get('trace', '')}")
    left = names(folder)
    # An old index has no other name where it could not be renamed back; the old pair is read from there.
    kept = any(name.endswith(".kept") and (folder / name).stat().st_nlink > 1 for name in left)
    if disk and (kept or any("building" in name for name in left)):
        wrong.append(f"left over after an error: {left}")
    if "kb.duckdb.embedded" in left and base.job not in EMBEDDING:
        wrong.append(f"vectors were kept by a job that has nothing to keep: {left}")
    status_after, _, (found, _) = fork(aftermath, folder, base.job)
    if status_after != 0:
        return "lost", status == -signal.SIGKILL, [*wrong, f"it is not sound, or the next run fails: {found}"]
    now, finished, files = found
    kind = "new" if now == base.new else "old" if now == base.old else "between" if base.is_between(now) else "neither"
    if kind == "neither":
        wrong.append(f"it is neither old nor new: {now}, {left}")
    if disk and status == 0 and kind != "new":
        wrong.append("it says that it is done, and is not")
    if finished != base.new:
        wrong.append(f"the next run does not finish the work: {finished}")
    if files != base.names:
        wrong.append(f"left over after the next run: {files}")
    return kind, status == -signal.SIGKILL, wrong


def tries(bases, modes, options):
    """Yield job, mode, call, seed and moment of each try."""
    chance = random.Random(options.seed)
    if options.sweep:
        for base in bases.values():
            for mode in modes:
                for call in range(1, base.calls + 1):
                    for seed in range(options.sweep):
                        yield base, mode, call, seed * 7919 + call, 0.0
        return
    count, end = 0, time.monotonic() + options.seconds
    while count < options.tries if options.tries else time.monotonic() < end:
        base = bases[chance.choice(sorted(bases))]
        mode, call, seed = chance.choice(modes), chance.randint(1, base.calls), chance.randrange(1 << 30)
        yield base, mode, call, seed, chance.uniform(0.005, base.seconds * 1.1)
        count += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--tries", type=int, default=0)
    parser.add_argument("--sweep", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--modes", default=",".join(shim.MODES))
    parser.add_argument("--keep", type=Path, help="a folder for the files of failures")
    options = parser.parse_args()
    for name in sqlrag.__all__:
        getattr(sqlrag, name)
    outcomes, kills, failures = Counter(), 0, []
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        bases = {job: Base(job, folder) for job in options.jobs.split(",")}
        modes = [mode for mode in options.modes.split(",") if mode != "time" or not options.sweep]
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):  # the report is printed all the same
            for base, mode, call, seed, moment in tries(bases, modes, options):
                kind, killed, wrong = attempt(base, mode, call, seed, moment, folder / "run")
                outcomes[f"{base.job}/{mode}: {kind}"] += 1
                kills += killed
                if wrong:
                    at = f"{moment:.4f} s" if mode == "time" else f"call {call} of {base.calls}, seed {seed}"
                    failures.append({"job": base.job, "mode": mode, "at": at, "wrong": wrong})
                    if options.keep and len(failures) <= 12:
                        shutil.copytree(folder / "run", options.keep / f"{base.job}-{mode}-{call}-{seed}")
    print(json.dumps({
        "tries": sum(outcomes.values()), "kills": kills,
        "lost": sum(count for what, count in outcomes.items() if what.endswith((": lost", ": neither"))),
        "failed": len(failures), "outcomes": dict(sorted(outcomes.items())), "failures": failures,
    }, indent=1))  # fmt: skip
    return 1 if failures else 0


SHIM = shim.Shim()

if __name__ == "__main__":
    sys.exit(main())
