"""Stores that tests share."""

from __future__ import annotations

import functools
import json
import tempfile
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from sqlrag.engines.duckdb.check import check_names
from sqlrag.engines.duckdb.schema import for_dimensions, read_sql
from sqlrag.search.store import Store
from sqlrag.types import Chunk, Document

# Vectors of length 1 whose products with each other are exact in binary.
POND = (1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
BREAD = (0.5, 0.5, 0.5, 0.5, 0.0, 0.0, 0.0, 0.0)
GOOSE = (0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
OVEN = (-0.5, -0.5, -0.5, 0.5, 0.0, 0.0, 0.0, 0.0)

DUCKS = Document(
    "a.md",
    "duck pond\n\nduck duck bread",
    checksum="aa",
    mime="text/markdown",
    tags=("birds",),
    metadata={"year": 2024},
)
GEESE = Document("b.md", "goose pond water pond", checksum="bb", mime="text/markdown", metadata={"year": 2023.5})
OVENS = Document("notes:c.pdf", "bread oven", "notes", checksum="cc", mime="application/pdf", size_bytes=300)


def small_chunks() -> list[Chunk]:
    first = Chunk("a.md", 0, "duck pond", ("birds", "water"), {"year": 2024, "lang": "en"}, i_start=0, i_end=9)
    second = Chunk("a.md", 1, "duck duck bread", ("birds",), {"year": 2024}, i_start=11, i_end=26)
    third = Chunk("b.md", 0, "goose pond water pond", ("water",), {"year": 2023.5}, i_start=0, i_end=21)
    fourth = Chunk("notes:c.pdf", 0, "bread oven", (), {"year": "2024", "draft": None}, "notes", page=2)
    return [replace(first, heading_path=("Ducks",)), replace(second, heading_path=("Ducks", "Food")), third, fourth]


def make_small_store(path: Path) -> None:
    """Make the store that ``tests/sql`` queries: three documents, four chunks, eight dimensions."""
    path.write_bytes(_small_store())


@functools.cache
def _small_store() -> bytes:
    """Return the file, which is written once in a process: that takes 0.2 s."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.duckdb"
        _write_small_store(path)
        return path.read_bytes()


def _write_small_store(path: Path) -> None:
    with Store.create(path, 8, heading_weight=2) as store:
        store.upsert([DUCKS, GEESE, OVENS], small_chunks(), [POND, BREAD, GOOSE, OVEN])
        con = store.cursor()
        con.execute(
            "INSERT INTO ingest_failures VALUES ('bad.pdf', 'failed', 'it is damaged', $1)", [datetime(2024, 1, 1)]
        )
        con.execute(
            "INSERT INTO query_embeddings VALUES ('pond', $1, 'given', $2)", [json.dumps(POND), datetime(2024, 1, 1)]
        )


def check_views(dimensions: int) -> list[str]:
    """Return a statement for each check that makes a temporary view of it, named check_ and its name."""
    names = check_names()
    return [
        f"CREATE TEMP VIEW check_{name} AS {for_dimensions(read_sql(f'checks/{name}'), dimensions)}" for name in names
    ]
