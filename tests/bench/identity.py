"""Whether memory answers as SQL does: random questions with random options over a file, every row and score compared.

python -m tests.bench.identity [--size 10000 | --db FILE] [--questions 2000] [--rounded] [--seed 1]

Ids, order, scores, notices, explanations and the SQL that is told must be the same; the program ends with 1 where an
answer differs. With ``--rounded`` there is room for vectors of a byte a dimension alone. ``tests/conformance/parity``
does the same on the handbook.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from sqlrag import Store
from tests.bench.common import environment
from tests.bench.corpora import fill
from tests.support.residence import in_memory, random_questions, same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000)
    parser.add_argument("--db", type=Path, help="another file, in place of one of --size chunks")
    parser.add_argument("--questions", type=int, default=2000)
    parser.add_argument("--rounded", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(environment())
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.db or Path(folder) / "kb.duckdb"
        if arguments.db is None:
            fill(path, arguments.size)
        began, differing = time.monotonic(), 0
        with Store(path, resident=False) as by_sql, in_memory(path, rounded=arguments.rounded) as in_arrays:
            if in_arrays.lexical_query("what").methods.get("engine") != "memory":
                sys.exit(f"Memory does not answer: {in_arrays.lexical_query('what').methods}.")
            for asked in random_questions(by_sql, arguments.questions, arguments.seed):
                difference = same(by_sql, in_arrays, *asked)
                differing += bool(difference)
                if difference:
                    print(difference)
            chunks = in_arrays._engine.chunks()
    what = "rounded vectors" if arguments.rounded else "float32"
    took = time.monotonic() - began
    print(f"{chunks:,} chunks, {what}: {arguments.questions} questions, {differing} differences, {took:.0f} s")
    sys.exit(bool(differing))


if __name__ == "__main__":
    main()
