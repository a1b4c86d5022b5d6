"""Documents and chunks out of JSON, as ``.ragmd`` and FAISS + JSON share them: the way into a store."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.errors import FormatError
from sqlrag.formats.contents import CHUNK_SCHEMA, SOURCE_SCHEMA, Batch, Contents, has_own_ids
from sqlrag.formats.documents import CHUNK_KEY, CONTENT, PLAIN_TEXT, default_key, file_name_of
from sqlrag.formats.header import check_header, read_settings, text_of
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlrag.formats.flat_index import FlatIndex
    from sqlrag.types import Vectors

_DOCUMENT_KEYS = {
    *("id", "content", "full_text", "metadata", "source", "chunks"),
    *("body_start", "checksum", "chunk_metadata", "chunk_policy", "collection", "file_name", "mime", "modified_at"),
    *("page_starts", "size_bytes", "tags"),
    *("i_vector_start", "i_vector_end"),  # other programs say so where the vectors of a document are
}
_CHUNK_KEYS = {
    *("faiss_id", "id", "i_start", "i_end", "chunk_index", "heading_path", "metadata", "node_id", "page", "tags")
}
_MOST = (1 << 31) - 1
_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False)


def _by_id(documents: Any, where: str) -> dict[str, dict[str, Any]]:
    """Return the documents by their ids, in order."""
    if isinstance(documents, dict):
        named = list(documents.items())
    elif isinstance(documents, list):
        named = [(document.get("id") if isinstance(document, dict) else None, document) for document in documents]
    else:
        raise FormatError(f"{where}: the documents must be an object or a list, not {_shown(documents)}.")
    found: dict[str, dict[str, Any]] = {}
    for name, document in named:
        if not isinstance(document, dict) or not isinstance(name, str) or not name:
            raise FormatError(f"{where}: a document must be an object with an id, not {_shown(document)}.")
        if document.get("id", name) != name:
            raise FormatError(
                f"{where}: the document {name!r} has the id {_shown(document['id'])}. Both must be equal."
            )
        if name in found:
            raise FormatError(f"{where}: the document {name!r} is there more than once. Each needs an id of its own.")
        found[name] = document
    if not found:
        raise FormatError(f"{where} holds no document, so there is nothing to read. Export a store that has some.")
    return dict(sorted(found.items()))


class DocumentReader:
    """Documents and chunks out of parsed JSON, which wait for their vectors.

    Parameters
    ----------
    documents
        An object by id, or a list.
    references
        A list with one object for each vector, in their order.
    policy
        The chunk policy of documents that name none.
    where
        What the file is called in messages.

    Raises
    ------
    FormatError
        Something is missing, of the wrong type, there twice, or does not fit together.
    """

    def __init__(self, documents: Any, references: Any, policy: str | None, where: str) -> None:
        by_id = _by_id(documents, where)
        self.documents = {name: _Document(name, document, policy, where) for name, document in by_id.items()}
        self.where = where
        self.rows: list[tuple[Any, ...]] = []
        self._add(references)

    def _add(self, references: Any) -> None:
        """Take one chunk for each reference."""
        if not isinstance(references, list):
            raise FormatError(f"{self.where}: the chunk references must be a list, not {_shown(references)}.")
        chunks = sum(len(document.chunks) for document in self.documents.values())
        if len(references) != chunks:
            raise self._torn(f"{len(references)} chunk references, but {chunks} chunks in the documents")
        for number, reference in enumerate(references):
            if not isinstance(reference, dict):
                raise FormatError(f"{self.where}: chunk reference {number} must be an object, not {_shown(reference)}.")
            if reference.get("faiss_id", number) != number or isinstance(reference.get("faiss_id"), bool):
                raise FormatError(
                    f"{self.where}: chunk reference {number} has faiss_id {_shown(reference['faiss_id'])}; they count "
                    "from 0, without a gap."
                )
            name = reference.get("document_id")
            document = self.documents.get(name) if isinstance(name, str) else None
            if document is None:
                raise FormatError(
                    f"{self.where}: chunk reference {number} names the document {_shown(name)}, which is not there."
                )
            self.rows.append((document.name, *document.take(reference.get("chunk_key"), number)))

    def batch(self, vectors: Vectors) -> Batch:
        """Return everything in the order of doc_id and chunk_index, with ``[n, dimensions] float32`` vectors.

        Raises
        ------
        FormatError
            There are more vectors or fewer than chunks, or a value cannot be stored.
        """
        if len(vectors) != len(self.rows):
            raise self._torn(f"{len(vectors)} vectors, but {len(self.rows)} chunks")
        places = [row[:2] for row in self.rows]
        if any(one > other for one, other in pairwise(places)):
            order = sorted(range(len(places)), key=lambda number: places[number])
            self.rows = [self.rows[number] for number in order]
            vectors = vectors[np.array(order, np.int64)]
        names = ("doc_id", "chunk_index", "node_id", "text", "metadata_", "collection", "i_start", "i_end", "page")
        columns = list(zip(*self.rows, strict=True)) or [()] * 11
        rows = [document.row() for document in self.documents.values()]
        try:
            return Batch(
                _table({name: [row[name] for row in rows] for name in SOURCE_SCHEMA.names}, SOURCE_SCHEMA),
                _table(dict(zip((*names, "heading_path", "tags"), columns, strict=True)), CHUNK_SCHEMA),
                vectors,
            )
        except (OverflowError, UnicodeEncodeError, pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise FormatError(
                f"{self.where}: a value cannot be stored: {error}. Correct it, or export the file again."
            ) from error

    def _torn(self, what: str) -> FormatError:
        return FormatError(
            f"{self.where}: {what}. The file is cut short, edited, or put together of two; export it again."
        )

    def contents(self, header: Mapping[str, Any], index: FlatIndex, vectors_sha256: str) -> Contents:
        """Return everything with the vectors of an index, after comparing it with the header of the file.

        Raises
        ------
        FormatError
            They do not belong together.
        """
        batch = self.batch(index.vectors)
        dimensions = index.vectors.shape[1]
        found: dict[str, object] = {
            "embedding_dim": dimensions,
            "vector_count": len(index.vectors),
            "document_count": len(batch.sources),
        }
        check_header(header, found, vectors_sha256, self.where)
        settings = read_settings(header, dimensions, self.where)
        named = next((document.name for document in self.documents.values() if document.names_chunks), None)
        if named is not None and not has_own_ids(settings):
            raise FormatError(
                f"{self.where}, document {named!r}: only chunks of a store that was upgraded or of nodes with "
                "ids of their own have a node_id. Remove it."
            )
        updated_at = text_of(header, "updated_at", self.where)
        return Contents(settings, len(batch.sources), len(batch.chunks), [batch], updated_at, self.notices())

    def notices(self) -> list[str]:
        """Return what a person should know of what was left out."""
        unknown = set().union(*(document.unknown for document in self.documents.values()))
        notices = (
            [f"Keys that have no place in a store were left out: {', '.join(sorted(unknown))}."] if unknown else []
        )
        hidden = [document.name for document in self.documents.values() if document.hides_content]
        if hidden:
            notices.append(
                f"The metadata of {hidden[0]!r} (of {len(hidden)}) have a field {CONTENT!r} of their own, which the "
                "content of the document has replaced."
            )
        return notices


def _table(columns: Mapping[str, Sequence[Any]], schema: pa.Schema) -> pa.Table:
    return pa.table([pa.array(columns[field.name], field.type) for field in schema], schema=schema)


class _Document:
    """One document, whose chunks are taken one after the other."""

    def __init__(self, name: str, document: dict[str, Any], policy: str | None, where: str) -> None:
        self.name = name
        self.where = f"{where}, document {name!r}"
        self.document = document
        self.text: str = self._value("full_text", str, "")
        self.content: dict[str, Any] = self._value("content", dict, {})
        self.metadata: dict[str, Any] = self._value("metadata", dict, {})
        self.chunks: dict[str, Any] = self._value("chunks", dict, {})
        self.collection: str = self._value("collection", str, DEFAULT_COLLECTION)
        self.tags = self._texts(document, "tags", [])
        self.policy = document.get("chunk_policy", policy)
        if self.policy is not None and not _is_policy(self.policy):
            raise self.error(f"chunk_policy must be JSON in a text, not {_shown(self.policy)}")
        self.common = self._json({**self.metadata, **self._value("chunk_metadata", dict, {})})
        self.taken: set[str] = set()
        self.fields: set[str] = set()
        self.unknown = set(document) - _DOCUMENT_KEYS
        self.hides_content = False
        self.names_chunks = False

    def error(self, what: str) -> FormatError:
        return FormatError(f"{self.where}: {what}. Correct it, or export the file again.")

    def _value(self, key: str, kind: type, default: Any) -> Any:
        value = self.document.get(key)
        if value is None:
            return default
        if not isinstance(value, kind):
            raise self.error(f"{key} must be {'an object' if kind is dict else 'a text'}, not {_shown(value)}")
        return value

    def _texts(self, values: dict[str, Any], key: str, default: list[str]) -> list[str]:
        texts = values.get(key)
        if texts is None:
            return default
        if not isinstance(texts, list) or {*map(type, texts)} - {str}:
            raise self.error(f"{key} must be a list of texts, not {_shown(texts)}")
        return texts

    def _number(self, values: dict[str, Any], key: str, most: int = _MOST) -> int | None:
        number = values.get(key)
        if number is not None and (type(number) is not int or not 0 <= number <= most):
            raise self.error(f"{key} must be a whole number from 0 on, not {_shown(number)}")
        return number

    def _json(self, metadata: dict[str, Any]) -> str:
        try:
            return _ENCODER.encode(metadata)
        except (ValueError, RecursionError) as error:  # a number such as 1e999
            raise self.error(f"metadata hold a number that is too large, or are nested too deep: {error}") from error

    def take(self, key: Any, number: int) -> tuple[Any, ...]:
        """Return the columns of a chunk but the first, ``doc_id``."""
        chunk = self.chunks.get(key) if isinstance(key, str) else None
        if not isinstance(chunk, dict):
            raise self.error(f"there is no chunk {_shown(key)}, which chunk reference {number} names")
        if key in self.taken:
            raise self.error(f"two chunk references name the chunk {key!r}")
        faiss_id = chunk.get("faiss_id", chunk.get("id"))
        # Other programs leave -1 there.
        if faiss_id is not None and faiss_id != -1 and (faiss_id != number or isinstance(faiss_id, bool)):
            raise self.error(f"chunk {key!r} has the faiss_id {_shown(faiss_id)}, but is reference {number}")
        if not chunk.keys() <= _CHUNK_KEYS:
            self.unknown |= chunk.keys() - _CHUNK_KEYS
        index = self._number(chunk, "chunk_index")
        index = len(self.taken) if index is None else index
        self.taken.add(key)
        start, end = self._number(chunk, "i_start"), self._number(chunk, "i_end")
        node_id = f"{self.name}#{index}"
        if "node_id" in chunk:
            node_id, self.names_chunks = chunk["node_id"], True
            if not isinstance(node_id, str) or not node_id:
                raise self.error(f"node_id must be a text, not {_shown(node_id)}")
        metadata = self.common if chunk.get("metadata") is None else self._own_metadata(chunk["metadata"])
        if key != default_key(index):
            metadata = self._json({**json.loads(metadata), CHUNK_KEY: key})
        text = self._field(key) if start is None or end is None else self.text[start:end]
        page = self._number(chunk, "page")
        headings, tags = self._texts(chunk, "heading_path", []), self._texts(chunk, "tags", self.tags)
        return index, node_id, text, metadata, self.collection, start, end, page, headings, tags

    def _own_metadata(self, metadata: Any) -> str:
        if not isinstance(metadata, dict):
            raise self.error(f"the metadata of a chunk must be an object, not {_shown(metadata)}")
        return self._json(metadata)

    def _field(self, key: str) -> str:
        text = self.content.get(key)
        if not isinstance(text, str):
            raise self.error(
                f"chunk {key!r} has no place in the text, and content has no text of this name but {_shown(text)}"
            )
        self.fields.add(key)
        return text

    def row(self) -> dict[str, Any]:
        """Return the columns of the document."""
        left = {name: value for name, value in self.content.items() if name not in self.fields}
        self.hides_content = bool(left) and CONTENT in self.metadata
        metadata = {**self.metadata, CONTENT: left} if left else self.metadata
        source = self._value("source", str, "") or self.metadata.get("source") or self.name
        file_path = source if isinstance(source, str) else self.name
        return {
            "doc_id": self.name,
            "file_path": file_path,
            "file_name": self._value("file_name", str, file_name_of(file_path)),
            "text": self.text,
            "metadata_": self._json(metadata),
            "collection": self.collection,
            "checksum": self._value("checksum", str, ""),
            "mime": self._value("mime", str, PLAIN_TEXT),
            "size_bytes": self._number(self.document, "size_bytes", (1 << 63) - 1) or 0,
            "modified_at": self._modified_at(),
            "tags": self.tags,
            "body_start": self._number(self.document, "body_start") or 0,
            "page_starts": self._page_starts(),
            "chunk_policy": self.policy,
        }

    def _modified_at(self) -> datetime | None:
        value = self._value("modified_at", str, "")
        if not value:
            return None
        try:
            time = datetime.fromisoformat(value.removesuffix("Z"))
            return time.astimezone(timezone.utc).replace(tzinfo=None) if time.tzinfo else time
        except (ValueError, OverflowError) as error:
            raise self.error(f"modified_at is no time: {value!r:.60}") from error

    def _page_starts(self) -> list[int]:
        starts = self.document.get("page_starts")
        if starts is None:
            return []
        if not isinstance(starts, list) or not all(type(start) is int and 0 <= start <= _MOST for start in starts):
            raise self.error(f"page_starts must be a list of whole numbers, not {_shown(starts)}")
        return starts


@lru_cache(maxsize=64)
def _is_policy_text(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _is_policy(value: Any) -> bool:
    return isinstance(value, str) and _is_policy_text(value)


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return f"{value!r:.60}"
