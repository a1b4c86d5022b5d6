"""Changes and questions in turn, for a long time, in one process that searches in memory; its memory has to stay flat.

python -m tests.bench.soak [--rounds 2000] [--documents 500] [--rounded] [--folder FOLDER]

In each round documents are added, replaced and deleted, so that there are as many as before, and questions are asked
with and without filters, at once after the change and when the file has been read into memory again. Every answer is
compared with that of the SQL: ids, order and scores. Resident memory (VmRSS) is printed twenty times; the program fails
where an answer differs. ``--sql`` asks SQL in the place of memory, which shows what DuckDB's own memory grows by.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag import Chunk, Document, Settings, Store
from tests.bench.common import environment, markdown_table, resident_mb
from tests.support.residence import in_memory, same, settle

if TYPE_CHECKING:
    from collections.abc import Iterator

DIMENSIONS = 64
PER_DOCUMENT = 4
QUESTIONS = 3
WORDS = [f"{start}{end}" for start in ("pump", "valve", "ferry", "lamp", "winch") for end in ("", *"abcdefghij")]


def put(store: Store, numbers: list[int], chosen: random.Random) -> None:
    """Store documents by their numbers, each time with other words and vectors."""
    documents = [Document(f"d{number:05}.md", "") for number in numbers]
    chunks = [
        Chunk(document.doc_id, place, " ".join(chosen.choices(WORDS, k=30)), tags=(f"t{number % 7}",))
        for document, number in zip(documents, numbers, strict=True)
        for place in range(PER_DOCUMENT)
    ]
    vectors = np.random.default_rng(chosen.randrange(2**32)).normal(size=(len(chunks), DIMENSIONS))
    store.upsert(documents, chunks, vectors.astype(np.float32))


def asked(chosen: random.Random, numbers: list[int]) -> tuple[str, str, dict[str, Any]]:
    """Return one search: the mode, the question and the options."""
    of_documents = {"$doc_id": {"$in": [f"d{number:05}.md" for number in chosen.sample(numbers, 20)]}}
    options = chosen.choice([{}, {}, {"tags_any": [f"t{chosen.randrange(8)}"]}, {"metadata": of_documents}])
    vector = np.random.default_rng(chosen.randrange(2**32)).normal(size=DIMENSIONS).astype(np.float32)
    mode = chosen.choice(["hybrid", "hybrid", "lexical"])
    more = {"query_vector": vector} if mode == "hybrid" else {}
    return mode, " ".join(chosen.choices(WORDS, k=4)), {"top_k": 10, **options, **more}


def run(
    path: Path, rounds: int, documents: int, *, rounded: bool = False, sql: bool = False
) -> Iterator[tuple[int, Counter[str]]]:
    """Yield after each round its number, and how often memory and SQL have answered; raise where answers differ."""
    chosen, numbers, answered = random.Random(1), list(range(documents)), Counter[str]()
    with Store.create(path, DIMENSIONS) as store:
        put(store, numbers, chosen)
    following = documents
    with (
        Store(path, read_only=False, resident=False)
        if sql
        else in_memory(path, rounded=rounded, read_only=False) as store,
        Store(path, read_only=False, resident=False, settings=Settings(resident_mb=0)) as by_sql,
    ):
        for number in range(1, rounds + 1):
            gone = chosen.sample(numbers, 3)
            store.delete_documents(doc_ids=[f"d{one:05}.md" for one in gone])
            new = [*range(following, following + 3)]
            following += 3
            kept = [one for one in numbers if one not in gone]
            put(store, [*new, *chosen.sample(kept, 2)], chosen)
            numbers = kept + new
            for after in ("at once", "in memory"):
                if after == "in memory" and not sql:
                    settle(store)
                answered[store.lexical_query("pump").methods.get("engine", "SQL").partition(",")[0]] += 1
                for _ in range(QUESTIONS):
                    mode, question, options = asked(chosen, numbers)
                    difference = same(by_sql, store, mode, question, options)
                    assert difference == "", f"round {number}, {after}: {difference}"
            yield number, answered


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--documents", type=int, default=500)
    parser.add_argument("--rounded", action="store_true", help="with room for rounded vectors only")
    parser.add_argument("--sql", action="store_true")
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    print(f"{environment()}\n")
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        path = (arguments.folder or Path(temporary)) / "soak.duckdb"
        for number, answered in run(
            path, arguments.rounds, arguments.documents, rounded=arguments.rounded, sql=arguments.sql
        ):
            if number % max(1, arguments.rounds // 20) == 0:
                size = path.stat().st_size / 1e6
                rows.append([f"{number:,}", f"{resident_mb():.0f}", f"{size:.0f}", str(dict(answered))])
    print(markdown_table(["rounds", "resident MB", "file MB", "answered by"], rows))


if __name__ == "__main__":
    main()
