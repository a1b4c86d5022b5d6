"""Mutates exchange files: each is refused with FormatError, or read as what it was.

python tests/support/fuzz_formats.py [NUMBER]: so many mutations of each format, 20,000 unless given.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sqlrag.engines.contents import checked_batches
from sqlrag.errors import FormatError
from sqlrag.formats.faiss_json import load_faiss_json, write_faiss_json
from sqlrag.formats.ragmd import load_ragmd, read_ragmd, write_ragmd
from tests.support.exchange_files import mutate, rows_of
from tests.support.stores import make_small_store


def _checked(contents):
    return rows_of(contents), list(checked_batches(contents))


def _outcome(load, original, is_ours, seed):
    """Return whether the file was refused; a file of sqlrag must not be read as anything else."""
    try:
        made, _ = _checked(load())
    except FormatError:
        return True
    if is_ours:
        assert made == original, f"seed {seed} is read as something else"
    return False


def ragmd(data, folder, seeds, is_ours=True):
    """Return how many of the mutations were refused. Other programs' files carry no hash: they only must not crash."""
    path = folder / "fuzz.ragmd"
    path.write_bytes(data)
    original, _ = _checked(load_ragmd(path))
    refused = 0
    for seed in seeds:
        path.write_bytes(mutate(data, seed))
        refused += _outcome(lambda: load_ragmd(path), original, is_ours, seed)
    return refused


def faiss_json(index, metadata, folder, seeds):
    """The same for a pair of files, one of which is mutated."""
    one, other = folder / "vectors-fuzz.faiss", folder / "metadata-fuzz.json"
    one.write_bytes(index)
    other.write_bytes(metadata)
    original, _ = _checked(load_faiss_json(one, other))
    refused = 0
    for seed in seeds:
        one.write_bytes(mutate(index, seed) if seed % 3 == 0 else index)
        other.write_bytes(metadata if seed % 3 == 0 else mutate(metadata, seed))
        refused += _outcome(lambda: load_faiss_json(one, other), original, True, seed)
    return refused


def main(number):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_small_store(folder / "small.duckdb")
        from sqlrag.formats.exchange import stored_contents

        with stored_contents(folder / "small.duckdb") as contents:
            write_ragmd(contents, folder / "a.ragmd")
        with read_ragmd(folder / "a.ragmd") as contents:
            write_faiss_json(contents, folder / "vectors-a.faiss")
        data = (folder / "a.ragmd").read_bytes()
        print(".ragmd:", ragmd(data, folder, range(number)), "of", number, "refused, the others read the same")
        pair = [(folder / file).read_bytes() for file in ("vectors-a.faiss", "metadata-a.json")]
        print("FAISS + JSON:", faiss_json(*pair, folder, range(number)), "of", number, "refused, the others the same")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
