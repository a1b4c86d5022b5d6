"""The rows of a store in Postgres inside a transaction: whole documents with their chunks, written by COPY."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.engines.duckdb import documents
from sqlrag.engines.duckdb.chunks import chunk_of
from sqlrag.engines.duckdb.documents import (
    LLAMA_INDEX_FIELDS,
    check_rows,
    chunk_columns,
    shown_part,
    sources_table,
)
from sqlrag.engines.duckdb.metadata import OWN_IDS
from sqlrag.engines.duckdb.rows import document_of
from sqlrag.engines.duckdb.schema import read_sql
from sqlrag.engines.postgres import lexical
from sqlrag.engines.postgres.conditions import by_value, where
from sqlrag.engines.postgres.connection import read_settings
from sqlrag.errors import InputError
from sqlrag.links import is_markdown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlrag.engines.postgres.connection import Connection
    from sqlrag.types import Chunk, Document, Vectors

_SOURCE_TYPES = {
    "doc_id": "text",
    "file_path": "text",
    "file_name": "text",
    "text": "text",
    "metadata_": "json",
    "collection": "text",
    "checksum": "text",
    "mime": "text",
    "size_bytes": "int8",
    "modified_at": "timestamp",
    "tags": "text[]",
    "body_start": "int4",
    "page_starts": "int4[]",
    "chunk_policy": "json",
}

_CHUNK_TYPES = {
    "node_id": "text",
    "text": "text",
    "metadata_": "json",
    "doc_id": "text",
    "collection": "text",
    "chunk_index": "int4",
    "i_start": "int4",
    "i_end": "int4",
    "page": "int4",
    "heading_path": "text[]",
    "tags": "text[]",
    "checksum": "text",
    "shown": "text",
}

_NUL = re.compile("\0")

_JSON_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


class PostgresRows:
    """The rows of one store; ``parse`` returns the alternatives of a metadata filter that is given as JSON."""

    def __init__(self, con: Connection, parse: Callable[[str], Sequence[Sequence[Any]]]) -> None:
        self._con = con
        self._parse = parse

    def read_chunks(self, conditions: Mapping[str, Any]) -> list[Chunk]:
        metadata = conditions.get("metadata")
        asked = where(
            **{name: conditions.get(name) for name in ("collection", "tags_any", "tags_all")},
            alternatives=None if metadata is None else self._parse(metadata),
            ids={"node_id": conditions.get("node_ids"), "doc_id": conditions.get("doc_ids")},
        )
        statement = asked.into(read_sql("postgres/chosen_chunks"))
        return [chunk_of(row) for row in self._con.execute(statement, asked.values).fetchall()]

    def read_documents(self, doc_ids: Sequence[str]) -> list[Document]:
        cursor = self._con.execute(read_sql("postgres/documents"), {"doc_ids": list(doc_ids)})
        names = [column.name for column in cursor.description or ()]
        return [document_of(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]

    def read_vectors(self, node_ids: Sequence[str]) -> dict[str, Any]:
        cursor = self._con.cursor(binary=True)
        statement = "SELECT node_id, embedding FROM chunks WHERE node_id = ANY(%s)"
        return {node_id: as_array(vector) for node_id, vector in cursor.execute(statement, [list(node_ids)]).fetchall()}

    def write(
        self,
        documents: Sequence[Document],
        chunks: Sequence[Chunk],
        vectors: Vectors | None,
        gone: Sequence[str] = (),
    ) -> None:
        check_rows(documents, chunks, 0 if vectors is None else len(vectors))
        settings = read_settings(self._con)
        compatible = settings.get("llama_index_compatible", "True") == "True"
        columns = chunk_columns({d.doc_id: d for d in documents}, chunks, compatible)
        sources = sources_table(documents, None)
        self.replace(sources, columns, np.empty((0, 1), np.float32) if vectors is None else vectors, gone=gone)
        if OWN_IDS not in settings and any(c.node_id != f"{c.doc_id}#{c.chunk_index}" for c in chunks):
            self.set_metadata({OWN_IDS: True})

    def replace(
        self,
        sources: pa.Table,
        chunks: Mapping[str, Any],
        vectors: Vectors,
        *,
        gone: Sequence[str] = (),
        digests: Sequence[str | None] | None = None,
        may_move: bool = False,
    ) -> None:
        """Write documents, replacing their stored rows.

        ``sources`` are rows of ``source_documents``, ``chunks`` columns of ``documents`` with a vector each,
        ``digests`` one for each document where they are known. ``may_move``: also of those in other collections.
        """
        for doc_id in with_nul(sources, chunks):
            raise InputError(
                f"{doc_id!r} holds the character NUL (U+0000), which Postgres cannot store. Remove it from the text."
            )
        ids = sources["doc_id"].to_pylist()
        collections = sources["collection"].to_pylist()
        if not may_move:
            documents.refuse_moved(self.collections_of(ids), dict(zip(ids, collections, strict=True)))
        self._con.execute(read_sql("postgres/add_collections"), {"collections": sorted(set(collections))})
        taken = lexical.take_chunks(self._con, [*ids, *gone])
        self._delete([*ids, *gone])
        wanted = dict(zip(_as_list(chunks["node_id"]), _as_list(chunks["doc_id"]), strict=True))
        documents.refuse_taken(self.taken(list(wanted)), wanted)
        rows = _rows(sources, _SOURCE_TYPES)
        given = digests if digests is not None else [None] * len(ids)
        self._copy("copy_documents", [*_SOURCE_TYPES.values(), "text"], rows, given)
        parts = _rows(chunks, _CHUNK_TYPES)
        texts = pa.concat_tables([lexical.chunks_of(taken), lexical.chunks_table(chunks)])
        with ThreadPoolExecutor(1) as beside:
            # The words are found while the server stores the chunks.
            words = beside.submit(lexical.indexed, texts, self._stemmer())
            public = [_public(row[2]) for row in parts]
            self._copy("copy_chunks", [*_CHUNK_TYPES.values(), "jsonb", "vector"], parts, public, list(vectors))
            found = self._con.execute(read_sql("postgres/lexical/rids"), {"node_ids": list(wanted)}).fetchall()
            rid: dict[str, int] = dict(found)
            before, after = words.result().parted(len(taken))
        before.of([row[0] for row in taken]).write(self._con, -1)
        after.of([rid[node_id] for node_id in wanted]).write(self._con)
        lexical.join_rows(self._con)

    def _stemmer(self) -> str:
        return read_settings(self._con)["stemmer"]

    def refresh_shown(self) -> None:
        """Compute anew how a reader sees every chunk, from the stored texts."""
        found = self._con.execute("SELECT doc_id, mime FROM documents ORDER BY doc_id").fetchall()
        for doc_id in [doc_id for doc_id, mime in found if is_markdown(mime)]:
            document = self.read_documents([doc_id])[0]
            statement = "SELECT rid, content, i_start, i_end FROM chunks WHERE doc_id = %s ORDER BY chunk_index"
            chunks = self._con.execute(statement, [doc_id]).fetchall()
            seen = [shown_part((document.text, document.body_start, document.mime), *chunk[1:]) for chunk in chunks]
            changed = [(chunk[0], shown) for chunk, shown in zip(chunks, seen, strict=True) if shown is not None]
            rids, texts = [rid for rid, _ in changed], [shown for _, shown in changed]
            self._con.execute(read_sql("postgres/set_shown"), {"rids": rids, "shown": texts})

    def _copy(self, name: str, types: Sequence[str], rows: list[list[Any]], *beside: Sequence[Any]) -> None:
        from psycopg.types.json import Json, Jsonb

        # A text that is JSON already is sent unchanged.
        wrap: dict[str, Any] = {"json": lambda text: Json(text, str), "jsonb": lambda text: Jsonb(text, str)}
        wrapped = [(place, wrap[kind]) for place, kind in enumerate(types) if kind in wrap]
        whole = [[*row, *others] for row, *others in zip(rows, *beside, strict=True)]
        with self._con.cursor() as cursor, cursor.copy(read_sql(f"postgres/{name}")) as copy:
            copy.set_types(list(types))
            for row in whole:
                for place, wrapper in wrapped:
                    if row[place] is not None:
                        row[place] = wrapper(row[place])
                copy.write_row(row)

    def delete(self, doc_ids: Sequence[str]) -> list[str]:
        """Delete documents with their chunks; return those that were there, in order."""
        taken = lexical.take_chunks(self._con, doc_ids)
        if taken:
            words = lexical.indexed(lexical.chunks_of(taken), self._stemmer())
            words.of([row[0] for row in taken]).write(self._con, -1)
            lexical.join_rows(self._con)
        return self._delete(doc_ids)

    def _delete(self, doc_ids: Sequence[str]) -> list[str]:
        statement = "DELETE FROM documents WHERE doc_id = ANY(%s) RETURNING doc_id"
        return sorted(doc_id for (doc_id,) in self._con.execute(statement, [list(doc_ids)]).fetchall())

    def taken(self, node_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return the stored chunks (node_id, doc_id) that have these ids, in order."""
        statement = "SELECT node_id, doc_id FROM chunks WHERE node_id = ANY(%s) ORDER BY node_id"
        return self._con.execute(statement, [list(node_ids)]).fetchall()

    def forget_collections(self) -> None:
        self._con.execute(
            "DELETE FROM collections AS c WHERE NOT EXISTS (SELECT FROM documents AS d WHERE "
            "d.collection = c.collection)"
        )

    def set_metadata(self, values: Mapping[str, object]) -> None:
        """Set keys of ``embedding_metadata``."""
        named = {"keys": list(values), "values": [str(value) for value in values.values()]}
        self._con.execute(read_sql("postgres/set_metadata"), named)

    def collections_of(self, doc_ids: Sequence[str]) -> list[tuple[str, str]]:
        """Return those of the documents that are stored (doc_id, collection), in order."""
        statement = "SELECT doc_id, collection FROM documents WHERE doc_id = ANY(%s) ORDER BY doc_id"
        return self._con.execute(statement, [list(doc_ids)]).fetchall()


def as_array(vector: Any) -> Vectors:
    """Return a vector as the driver gives it, as ``[dimensions] float32``."""
    return np.asarray(vector if isinstance(vector, np.ndarray) else vector.to_numpy(), dtype=np.float32)


def _rows(columns: pa.Table | Mapping[str, Any], types: Mapping[str, str]) -> list[list[Any]]:
    lists = [_as_list(columns[name]) for name in types]
    return [list(row) for row in zip(*lists, strict=True)]


def _as_list(column: Any) -> list[Any]:
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _public(metadata: str) -> str:
    """Return the metadata that filters look at: without llama-index's fields, numbers as they compare."""
    found = by_value(metadata)
    return json.dumps({key: value for key, value in found.items() if key not in LLAMA_INDEX_FIELDS}, ensure_ascii=False)


def with_nul(sources: pa.Table, chunks: pa.Table | Mapping[str, Any]) -> dict[str, str]:
    """Return the documents that hold the character NUL, with the name of a column that has it."""
    found: dict[str, str] = {}
    for rows, types in ((sources, _SOURCE_TYPES), (chunks, _CHUNK_TYPES)):
        columns = dict(zip(rows.column_names, rows.columns, strict=True)) if isinstance(rows, pa.Table) else rows
        doc_ids = _as_list(columns["doc_id"])
        for name, kind in types.items():
            values = _as_list(columns[name]) if name in columns else []
            if _may_hold_nul(values, kind):
                nul = _JSON_NUL.search if kind == "json" else _NUL.search
                for doc_id, value in zip(doc_ids, values, strict=True):
                    if any(map(nul, value if isinstance(value, list) else [value or ""])):
                        found.setdefault(doc_id, name)
    return found


def _may_hold_nul(values: Sequence[Any], kind: str) -> bool:
    """Return whether a text or list of texts has the character, or JSON may have it: far faster than one by one."""
    if kind not in ("text", "json", "text[]"):
        return False
    given = [value for value in values if value is not None]
    whole = "".join(chain.from_iterable(given) if kind == "text[]" else given)
    return "\0" in whole or (kind == "json" and "\\u0000" in whole)
