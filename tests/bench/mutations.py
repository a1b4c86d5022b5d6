"""Opens damaged files of every format: each is refused with an error of sqlrag, or read as what it was.

python tests/bench/mutations.py [--tries 1000] [--seed 0] [--formats duckdb,ragmd,ragfile,faiss,parquet] [--processes 2]

A mutant has one to three faults: bits flipped, bytes changed, spans put in, taken out, zeroed or repeated, blocks
exchanged, the end cut off, parts of another edition of the file put in their place, numbers of its structure changed. A
store is checked and then read and searched; one in four is searched without a check. The other formats are verified,
read and imported; one in four RAGFiles is searched in place, whose digests are not checked then, as documented
("answered"). Many mutants share a process, which may take 30 seconds for each.

Prints JSON, by format: how many were refused, read as the same, read as something else ("different"), found sound by
the check and then refused ("missed"), raised another error than a SqlragError ("raw"), ended the process by a signal
("crash") or did not end ("hang"); with the seeds of all that should not be.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import multiprocessing.pool
import os
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import duckdb

import sqlrag
from sqlrag.engines.duckdb.failures import reported
from sqlrag.errors import SqlragError
from tests.support.exchange_files import mutate, rows_of
from tests.support.helpers import HASHING, write

FORMATS = {
    "duckdb": "kb.duckdb",
    "ragmd": "kb.ragmd",
    "ragfile": "kb.rag",
    "faiss": "vectors-kb.faiss",
    "parquet": "kb.parquet",
}

SEARCHED = 4  # of so many mutants of a store one is searched without a check

SECONDS = 30.0

_MEMORY = 12 << 30

_SIZES = (1, 2, 4, 8, 60, 512, 4096, 262_144)

_NUMBERS = (0, 1, 2, 0x7F, 0xFF, 0xFFFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def page(name, edition):
    return f"# {name}\n\ncommon word {name}\n\n## Part {edition}\n\nanother {name} edition{edition} {name * edition}\n"


def make(folder):
    """Make two editions of a store and of its exports; the second is an update of the first."""
    for edition in (1, 2):
        write(folder / "docs", **{f"{name}_md": page(name, edition) for name in "abcdef"[: 4 + edition]})
        target = folder / str(edition)
        target.mkdir()
        if edition == 1:
            sqlrag.prepare_embeddings(folder / "docs", target / "kb.duckdb", **HASHING)
        else:
            shutil.copyfile(folder / "1" / "kb.duckdb", target / "kb.duckdb")
            sqlrag.update_embeddings(folder / "docs", target / "kb.duckdb", progress="off")
        for name in FORMATS.values():
            if name != "kb.duckdb":
                sqlrag.convert(target / "kb.duckdb", target / name)


def files_of(folder, kind):
    """Return the files of one format, by name."""
    if kind == "faiss":
        names = ["vectors-kb.faiss", "metadata-kb.json"]
    elif kind == "parquet":
        names = sorted(str(file.relative_to(folder)) for file in (folder / FORMATS[kind]).rglob("*") if file.is_file())
    else:
        names = [FORMATS[kind]]
    return {name: (folder / name).read_bytes() for name in names}


# Mutants.


def faults(data, other, rng):
    """Return bytes with one to three faults; ``other`` is another edition of the file."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not made:
            break
        made = bytearray(rng.choice(_FAULTS)(made, other, rng))
    return bytes(made)


def _span(made, rng):
    size = rng.choice(_SIZES)
    at = rng.randrange(len(made))
    if rng.random() < 0.5:  # near an end, where formats keep their structure
        at = rng.choice((at % 4096, len(made) - 1 - at % 4096)) % len(made)
    if size >= 4096:
        at -= at % 4096
    return at, size


def _flip(made, other, rng):
    at, _ = _span(made, rng)
    made[at] ^= 1 << rng.randrange(8)
    return made


def _change(made, other, rng):
    at, size = _span(made, rng)
    size = min(size, 60)
    made[at : at + size] = rng.randbytes(len(made[at : at + size]))
    return made


def _zero(made, other, rng):
    at, size = _span(made, rng)
    made[at : at + size] = bytes(len(made[at : at + size]))
    return made


def _take_out(made, other, rng):
    at, size = _span(made, rng)
    del made[at : at + size]
    return made


def _put_in(made, other, rng):
    at, size = _span(made, rng)
    made[at:at] = rng.choice((rng.randbytes(min(size, 4096)), bytes(size), made[at : at + size]))
    return made


def _exchange(made, other, rng):
    """Exchange two spans, as long as a sector or as one of DuckDB's blocks."""
    size = rng.choice((512, 4096, 262_144))
    start = 12_288 if size == 262_144 else 0
    count = (len(made) - start) // size
    if count >= 2:
        one, two = (start + size * place for place in rng.sample(range(count), 2))
        made[one : one + size], made[two : two + size] = made[two : two + size], made[one : one + size]
    return made


def _cut(made, other, rng):
    at, _ = _span(made, rng)
    return made[:at]


def _mix(made, other, rng):
    """Put a part of the other edition in its place: a span, a block, the beginning or the end."""
    size = rng.choice((4096, 262_144, len(made) // 2, rng.randrange(1, len(made) + 1)))
    start = 12_288 if size == 262_144 else 0
    at = start + size * rng.randrange(max(1, (len(made) - start) // size))
    made[at : at + size] = other[at : at + size]
    return made


def _number(made, other, rng):
    """Change a number of the structure: a length, an offset, a count."""
    width = rng.choice((1, 2, 4, 8))
    at, _ = _span(made, rng)
    at -= at % width
    value = rng.choice((*_NUMBERS, int.from_bytes(made[at : at + width], "little") + rng.choice((-1, 1))))
    made[at : at + width] = (value % (1 << (8 * width))).to_bytes(width, "little")[: len(made[at : at + width])]
    return made


_FAULTS = (_flip, _flip, _change, _zero, _take_out, _put_in, _exchange, _cut, _mix, _mix, _number, _number)


def mutant(kind, originals, others, seed):
    """Return the files of a mutant, by name; a name may be missing."""
    rng = random.Random(f"{kind} {seed}")
    made = dict(originals)
    for _ in range(rng.choice((1, 1, 1, 2)) if len(made) > 1 else 1):
        name = rng.choice(sorted(made))
        if len(originals) > 1 and rng.random() < 0.1:
            made[name] = others.get(name, b"")  # a whole file of the other edition
        elif len(originals) > 1 and rng.random() < 0.03:
            del made[name]
            break
        elif name.endswith((".ragmd", ".json")) and rng.random() < 0.6:
            made[name] = mutate(made[name], seed)
        else:
            made[name] = faults(made[name], others.get(name, b""), rng)
    return made


# What is done with them.


def digest(value):
    return hashlib.sha256(repr(value).encode("utf-8", "surrogatepass")).hexdigest()


def answers(path):
    """Return what searches of a store answer."""
    with sqlrag.Store(path) as store:
        asked = [
            store.lexical_query("common edition1", top_k=50),
            store.vector_query("another word", top_k=50),
            store.hybrid_query("common a", top_k=50, include_source_docs=True),
            store.get_source_documents([f"{name}.md#0" for name in "abcde"]),
        ]
    return digest([list(map(dict, rows)) for rows in asked])


def tables(path):
    """Return all rows of the tables that people read."""
    # A program's own cursor raises DuckDB's errors.
    with sqlrag.Store(path) as store, reported(path):
        con = store.cursor()
        return digest([
            con.execute(f"FROM {table} ORDER BY ALL").fetchall()
            for table in ("documents", "source_documents", "embedding_metadata", "document_links", "collections")
        ])  # fmt: skip


def checked(path):
    """Return what a store holds, after a check that finds nothing."""
    problems = sqlrag.check(path)
    if problems:
        raise SqlragError(str(problems))
    return path


def held_by_store(path):
    return tables(path), answers(path)


def held_by_export(path):
    """Return what an exchange file holds, read, imported, and where it can be searched, searched."""
    from sqlrag.formats.convert import opened

    with opened(path) as contents:
        if path.suffix == ".parquet":
            contents = _whole(contents)
        found = [digest(rows_of(contents))]
    target = path.with_name("imported.duckdb")
    sqlrag.convert(path, target, overwrite=True)
    return [*found, answers(target)]


def read_in_place(path, salvage):
    """Read a RAGFile by its map, whose digests nobody has checked; what it answers may be anything."""
    with sqlrag.RAGFile(path, salvage=salvage) as file:
        for _ in zip(range(1000), file.iter_records(), strict=False):
            pass
        file.search_keyword("common")
        file.search_vector([1.0] * (file.dimensions or 64))


def _whole(contents):
    from dataclasses import replace

    return replace(contents, batches=list(contents.batches))


def outcome(kind, folder, seed, expected, other=None):
    """Return what became of a mutant that lies in a folder, and a word on it.

    ``other`` is what the other edition of an exchange file holds: a mutant may be all of it, and some lines more.
    """
    path = folder / FORMATS[kind]
    sound = False
    try:
        if kind == "duckdb" and seed % SEARCHED == 0:
            found, wanted = answers(path), expected[1]
        elif kind == "ragfile" and seed % SEARCHED == 0:
            read_in_place(path, salvage=seed % (2 * SEARCHED) == 0)
            return "answered", ""
        elif kind == "duckdb":
            checked(path)
            sound = True
            found, wanted = held_by_store(path), tuple(expected)
        else:
            sqlrag.verify_file(path)
            sound = True
            found, wanted = held_by_export(path), expected
    except SqlragError as error:
        return ("missed" if sound else "refused"), str(error)[:200]
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if f"{os.sep}sqlrag{os.sep}" in frame.filename]
        where = f" in {Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else ""
        return "raw", f"{type(error).__name__}: {str(error)[:200]}{where}"
    return ("same" if found == wanted else "unchanged" if found == other else "different"), ""


def expect(kind, folder):
    path = folder / FORMATS[kind]
    return list(held_by_store(path)) if kind == "duckdb" else held_by_export(path)


def put(files, folder):
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)


def work(kind, seeds, made, pipe):
    """Try mutants one after the other; say which is next before each, and what became of it after."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    originals, others = (files_of(made / str(edition), kind) for edition in (1, 2))
    with tempfile.TemporaryDirectory(dir=made) as name:
        folder = Path(name) / "mutant"
        put(others, folder)
        other = None if kind == "duckdb" else expect(kind, folder)
        put(originals, folder)
        expected = expect(kind, folder)
        for seed in seeds:
            pipe.send((seed, None, None))
            files = mutant(kind, originals, others, seed)
            put(files, folder)
            pipe.send(
                (
                    seed,
                    *(
                        ("unchanged", "")
                        if files in (originals, others)
                        else outcome(kind, folder, seed, expected, other)
                    ),
                )
            )
    pipe.send((None, None, None))


def batch(kind, seeds, made):
    """Yield seed, outcome and word of each; the process is started again after a crash or a hang."""
    seeds = list(seeds)
    while seeds:
        ours, theirs = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=work, args=(kind, seeds, made, theirs))
        process.start()
        theirs.close()
        current = None
        while True:
            try:
                ready = ours.poll(SECONDS if current is not None else 120)
                seed, kind_of, word = ours.recv() if ready else (current, "hang", "")
            except EOFError:
                process.join()
                seed, kind_of, word = current, "crash", f"exit code {process.exitcode}"
                if current is None:
                    raise RuntimeError(f"the worker ended by itself: {word}") from None
            if seed is None:
                process.join()
                return
            if kind_of is not None:
                yield seed, kind_of, word
            current = seed if kind_of is None else None
            if kind_of in ("hang", "crash"):
                process.kill()
                process.join()
                seeds = seeds[seeds.index(seed) + 1 :]
                break


def run(job):
    return job[0], list(batch(*job))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tries", type=int, default=1000, help="mutants of each format")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--batch", type=int, default=250, help="mutants of a process")
    parser.add_argument("--keep", type=Path, help="a folder for the mutants that should not be")
    options = parser.parse_args()
    report, began = {}, time.monotonic()
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(prefix="mutations-", dir=shared if shared.is_dir() else None) as name:
        made = Path(name)
        make(made)
        seeds = range(options.seed, options.seed + options.tries)
        jobs = [
            (kind, seeds[at : at + options.batch], made)
            for kind in options.formats.split(",")
            for at in range(0, len(seeds), options.batch)
        ]
        counts, bad = defaultdict(Counter), defaultdict(list)
        # Threads would do, since each waits for a process of its own.
        with multiprocessing.pool.ThreadPool(options.processes) as pool:
            for kind, results in pool.imap_unordered(run, jobs):
                for seed, what, word in results:
                    unchecked = kind in ("duckdb", "ragfile") and seed % SEARCHED == 0
                    way = f"{kind}, searched without a check" if unchecked else kind
                    counts[way][what] += 1
                    if what not in ("refused", "same", "unchanged", "answered"):
                        bad[way].append({"seed": seed, "outcome": what, "said": word})
                        if options.keep:
                            files = (files_of(made / str(edition), kind) for edition in (1, 2))
                            put(mutant(kind, *files, seed), options.keep / f"{kind}-{seed}-{what}")
        for way, found in sorted(counts.items()):
            report[way] = {"tries": found.total(), **dict(sorted(found.items())), "should not be": bad[way]}
    seconds = time.monotonic() - began
    versions = f"DuckDB {duckdb.__version__}, sqlrag {sqlrag.__version__}"
    print(json.dumps({"seconds": round(seconds, 1), "versions": versions, **report}, indent=1))
    return 1 if any(bad.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
