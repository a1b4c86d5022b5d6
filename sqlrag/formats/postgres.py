"""What a store in Postgres holds, in the batches that go into files of every format."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.formats.contents import CHUNK_SCHEMA, SETTINGS, SOURCE_SCHEMA, Batch, Contents, grouped
from sqlrag.retrieval.postgres_engine import parsed
from sqlrag.store.postgres import Server, read_settings
from sqlrag.store.postgres_conditions import where
from sqlrag.store.postgres_rows import as_array
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlrag.retrieval.filters import Filters
    from sqlrag.store.postgres import Connection


@contextmanager
def postgres_contents(url: str, filters: Filters, batch_chunks: int) -> Iterator[Contents]:
    """Open a store in Postgres and yield what it holds; see :func:`sqlrag.formats.exchange.stored_contents`."""
    named = filters.parameters()
    metadata = named.get("metadata")
    conditions = where(
        tags_any=named.get("tags_any"),
        tags_all=named.get("tags_all"),
        alternatives=None if metadata is None else parsed(metadata),
    )
    statement = conditions.into(read_sql("postgres/exchange/chosen_documents"))
    server = Server(url, read_only=True)
    server.open()
    try:
        with server.snapshot() as con:
            settings = read_settings(con)
            values = {**conditions.values, "collection": named.get("collection")}
            chosen = [(str(doc_id), int(chunks)) for doc_id, chunks in con.execute(statement, values).fetchall()]
            ((newest,),) = con.execute("SELECT max(created_at) FROM documents").fetchall()
            yield Contents(
                {name: settings[name] for name in SETTINGS if name in settings},
                len(chosen),
                sum(chunks for _, chunks in chosen),
                (read_batch(con, ids, int(settings["embedding_dimensions"])) for ids in grouped(chosen, batch_chunks)),
                updated_at="" if newest is None else f"{newest.isoformat(timespec='seconds')}Z",
            )
    finally:
        server.close()


def read_batch(con: Connection, doc_ids: Sequence[str], dimensions: int) -> Batch:
    """Return documents with their chunks and vectors."""
    sources = _table(con, "sources", doc_ids, SOURCE_SCHEMA)
    with con.cursor(binary=True) as cursor:
        rows = cursor.execute(read_sql("postgres/exchange/chunks"), {"doc_ids": list(doc_ids)}).fetchall()
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * (len(CHUNK_SCHEMA) + 1)
    columns[2] = [without_node(text) for text in columns[2]]
    chunks = pa.table(
        {name: pa.array(columns[place], CHUNK_SCHEMA.field(name).type) for place, name in enumerate(_CHUNK_NAMES)},
        schema=pa.schema([CHUNK_SCHEMA.field(name) for name in _CHUNK_NAMES]),
    ).select(CHUNK_SCHEMA.names)
    vectors = np.array([as_array(vector) for vector in columns[-1]], dtype=np.float32).reshape(-1, dimensions)
    return Batch(sources, chunks, vectors)


_CHUNK_NAMES = (
    *("node_id", "text", "metadata_", "doc_id", "collection", "chunk_index", "i_start", "i_end", "page"),
    *("heading_path", "tags"),
)


def _table(con: Connection, name: str, doc_ids: Sequence[str], schema: pa.Schema) -> pa.Table:
    with con.cursor(binary=True) as cursor:
        rows = cursor.execute(read_sql(f"postgres/exchange/{name}"), {"doc_ids": list(doc_ids)}).fetchall()
        names = [column.name for column in cursor.description or ()]
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(names)
    made = {name: pa.array(column, schema.field(name).type) for name, column in zip(names, columns, strict=True)}
    return pa.table(made, schema=pa.schema([schema.field(name) for name in names])).select(schema.names)


def without_node(metadata: str) -> str:
    """Return a chunk's metadata without what llama-index opens a node by, which an import makes again."""
    if "_node_content" not in metadata and "_node_type" not in metadata:
        return metadata
    found = json.loads(metadata)
    return json.dumps(
        {key: value for key, value in found.items() if key not in ("_node_content", "_node_type")},
        ensure_ascii=False,
        sort_keys=True,
    )
