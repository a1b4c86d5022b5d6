"""This package as a system of the peers' harness (its adapter interface is described in the harness' ``common.py``)."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path
from typing import Any

IMPORTS = ("sqlrag", "sqlrag.search.store")
CHOICES = "one upsert per 50,000 chunks of whole documents; hybrid_query with all defaults, 50 + 50 candidates"

BATCH = 50_000


class Adapter:
    """One store file; the harness' chunk ids are metadata of ours."""

    def __init__(self, store: str) -> None:
        self.file = Path(store) / "store.duckdb"

    def versions(self) -> dict[str, str]:
        import sqlrag

        return {"sqlrag": sqlrag.__version__, "duckdb": version("duckdb")}

    def build(self, corpus: Any) -> dict[str, Any]:
        """Write the corpus batch by batch, a document never being split between two."""
        import numpy as np

        from sqlrag import Chunk, Document, Store

        vectors = corpus.vectors(mmap=True)
        with Store.create(self.file, corpus.dim, overwrite=True) as store:
            rows: list[tuple[str, int, str, str]] = []
            at = 0

            def write(count: int) -> None:
                nonlocal rows, at
                names = dict.fromkeys(doc_id for doc_id, *_ in rows[:count])
                store.upsert(
                    [Document(name, "") for name in names],
                    [Chunk(doc, index, text, metadata={"id": name}) for doc, index, text, name in rows[:count]],
                    np.ascontiguousarray(vectors[at : at + count]),
                )
                rows, at = rows[count:], at + count

            for batch, _ in corpus.batches(BATCH):
                columns = (batch[name].to_pylist() for name in ("doc_id", "chunk_index", "text", "chunk_id"))
                rows.extend(zip(*columns, strict=True))
                while len(rows) >= 2 * BATCH:
                    write(next(i for i in range(BATCH, 0, -1) if rows[i][0] != rows[i - 1][0]))
            write(len(rows))
        return {"note": "documents have no text of their own"}

    def open(self) -> None:
        from sqlrag import Store

        self.store = Store(self.file, resident=False)

    def vector(self, qvec: Any, n: int) -> list[str]:
        return _ids(self.store.vector_query(query_vector=qvec, top_k=n))

    def lexical(self, text: str, n: int) -> list[str]:
        return _ids(self.store.lexical_query(text, top_k=n, syntax=False))

    def search(self, text: str, qvec: Any, k: int = 10, pool: int = 50) -> list[str]:
        return _ids(self.store.hybrid_query(text, query_vector=qvec, top_k=k, vector_top_k=pool, lexical_top_k=pool))

    def close(self) -> None:
        self.store.close()


def _ids(results: Any) -> list[str]:
    return [row["metadata"]["id"] for row in results]
