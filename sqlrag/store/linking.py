"""Keeps ``document_links`` in step with the texts of Markdown documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from sqlrag.links import markdown_links
from sqlrag.store.schema import read_sql

if TYPE_CHECKING:
    import duckdb

_MARKDOWN = "text/markdown"
_BATCH_DOCUMENTS = 256
_SCHEMA = pa.schema(
    [
        pa.field("doc_id", pa.string()),
        pa.field("link_index", pa.int32()),
        pa.field("i_start", pa.int32()),
        pa.field("i_end", pa.int32()),
        pa.field("label", pa.string()),
        pa.field("url", pa.string()),
        pa.field("target", pa.string()),
        pa.field("fragment", pa.string()),
    ]
)


def add_links(con: duckdb.DuckDBPyConnection, sources: pa.Table) -> None:
    """Insert the links of new documents, given as rows of ``source_documents``, inside the caller's transaction."""
    names = ("text", "body_start", "doc_id", "collection", "mime")
    rows = [
        (doc_id, index, *link)
        for text, body_start, doc_id, collection, mime in zip(*(sources[n].to_pylist() for n in names), strict=True)
        if mime == _MARKDOWN
        for index, link in enumerate(markdown_links(text, body_start, doc_id, collection))
    ]
    if rows:
        columns = zip(_SCHEMA, zip(*rows, strict=True), strict=True)
        con.register("new_links", pa.table({field.name: pa.array(values, field.type) for field, values in columns}))
        con.execute(read_sql("index/insert_links"))
        con.unregister("new_links")


def rebuild_links(con: duckdb.DuckDBPyConnection) -> None:
    """Take the links of all documents anew, inside the caller's transaction."""
    con.execute("DELETE FROM document_links")
    ids = [row[0] for row in con.execute(read_sql("index/markdown_documents"), {"mime": _MARKDOWN}).fetchall()]
    for start in range(0, len(ids), _BATCH_DOCUMENTS):
        batch = ids[start : start + _BATCH_DOCUMENTS]
        add_links(con, con.sql(read_sql("index/link_sources"), params={"doc_ids": batch}).to_arrow_table())
