"""Documents and chunks as JSON, as ``.ragmd`` and FAISS + JSON share them: the way out of a store.

What only sqlrag knows stands in keys of its own, left out where they have the value that a reader takes without them.
:mod:`sqlrag.formats.documents_reading` is the way back.
"""

from __future__ import annotations

import json
from functools import cached_property
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from sqlrag.errors import FormatError
from sqlrag.types import DEFAULT_COLLECTION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.formats.contents import Batch

PLAIN_TEXT = "text/plain"
CHUNK_KEY = "chunk_key"
"""Where the metadata of a chunk keep its key, if that is not ``chunk-`` and its number."""
CONTENT = "content"
"""Where the metadata of a document keep its fields."""


# Kept, since json.dumps makes one for each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False)


class DocumentTexts(NamedTuple):
    """JSON without the brackets around it, sorted keys, one chunk a line.

    ``ids`` and ``blocks`` hold a document each; ``references`` a vector each, in the order of the vectors, as its
    members ``chunk_key`` and ``document_id``.
    """

    ids: list[str]
    blocks: list[str]
    references: list[str]


def default_key(chunk_index: int) -> str:
    """Return the key of a chunk that has no other."""
    return f"chunk-{chunk_index}"


def to_json(value: Any) -> str:
    """Return JSON in one line, with sorted keys.

    Raises
    ------
    FormatError
        There is NaN or an infinite number in it, which JSON has not.
    """
    try:
        return _ENCODER.encode(value)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"Metadata hold NaN or an infinite number, which JSON has not, or are nested too deep: {error}. "
            "Put null there."
        ) from error


def write_documents(batch: Batch, policy: str | None) -> DocumentTexts:
    """Return the documents of a batch; ``policy`` is the chunk policy of those that name none.

    Raises
    ------
    FormatError
        A document or key is there twice, a chunk is not the slice that it names, or metadata hold NaN.
    """
    columns = _Columns(batch.chunks)
    sources = batch.sources.to_pylist()
    ids = [quoted(source["doc_id"]) for source in sources]
    if len(set(ids)) != len(ids):
        raise FormatError("A document is there more than once. Each needs an id of its own.")
    places = _places(columns.doc_ids)
    blocks: list[str] = []
    references: list[str] = []
    for source, doc_id in zip(sources, ids, strict=True):
        first, last = places.pop(source["doc_id"], (0, 0))
        document = _Document(source, columns, first, last)
        blocks.append(document.block(doc_id, policy))
        references += [f'"chunk_key": {key}, "document_id": {doc_id}' for key in document.json_keys]
    if places:
        raise FormatError(f"The document {next(iter(places))!r} of a chunk is not there.")
    return DocumentTexts(ids, blocks, references)


def _places(doc_ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Return the first row of each document and the one after its last."""
    places: dict[str, tuple[int, int]] = {}
    first = 0
    for row in range(1, len(doc_ids) + 1):
        if row == len(doc_ids) or doc_ids[row] != doc_ids[first]:
            places[doc_ids[first]] = (first, row)
            first = row
    return places


class _Columns:
    """The columns of chunks as lists; pyarrow makes them much faster in this way than row by row."""

    def __init__(self, chunks: pa.Table) -> None:
        self.doc_ids = _texts(chunks["doc_id"])
        self.node_ids = _texts(chunks["node_id"])
        self.texts = _texts(chunks["text"])
        self.metadata = _texts(chunks["metadata_"])
        self.indexes = _integers(chunks["chunk_index"])
        self.starts = _integers(chunks["i_start"])
        self.ends = _integers(chunks["i_end"])
        self.pages = _integers(chunks["page"])
        self.headings = _lists_as_json(chunks["heading_path"])
        self.tags = _lists_as_json(chunks["tags"])


def _texts(column: pa.ChunkedArray) -> list[str]:
    texts: list[str] = column.to_numpy().tolist()
    return texts


def _integers(column: pa.ChunkedArray) -> list[int]:
    """Return numbers that are 0 or more, -1 for NULL."""
    numbers: list[int] = column.fill_null(-1).to_numpy().tolist()
    return numbers


def _lists_as_json(column: pa.ChunkedArray) -> list[str]:
    """Return lists of texts as JSON without the brackets."""
    array = column.combine_chunks()
    texts = pa.array(list(map(quoted, array.flatten().to_numpy(zero_copy_only=False))), pa.string())
    ends = array.value_lengths().to_numpy(zero_copy_only=False).cumsum(dtype="int32")
    lists = pa.ListArray.from_arrays(pa.array([0, *ends], pa.int32()), texts)
    joined: list[str] = pc.binary_join(lists, ", ").to_numpy(zero_copy_only=False).tolist()
    return joined


class _Document:
    """One document on its way out: its row, and the rows ``first`` to ``last`` of the chunks."""

    def __init__(self, source: dict[str, Any], columns: _Columns, first: int, last: int) -> None:
        self.source = source
        self.columns = columns
        self.first = first
        self.tags = ", ".join(map(quoted, source["tags"]))
        self.indexes = columns.indexes[first:last]
        parsed: dict[str, Any] = {}
        texts = columns.metadata[first:last]
        for text in texts:
            if text not in parsed:
                parsed[text] = json.loads(text)
        self.chunk_metadata: list[dict[str, Any]] = [parsed[text] for text in texts]
        self._name_chunks()
        self._split_metadata()

    def _name_chunks(self) -> None:
        """Take the keys that another program gave out of the metadata, unless two chunks have the same."""
        defaults = [default_key(index) for index in self.indexes]
        self.keys, self.json_keys = defaults, [f'"{key}"' for key in defaults]
        if not any(CHUNK_KEY in metadata for metadata in self.chunk_metadata):
            return
        given = [metadata.get(CHUNK_KEY) for metadata in self.chunk_metadata]
        keys = [key if isinstance(key, str) else default for key, default in zip(given, defaults, strict=True)]
        if len(set(keys)) == len(keys):
            self.keys, self.json_keys = keys, list(map(quoted, keys))
            self.chunk_metadata = [
                {name: value for name, value in metadata.items() if name != CHUNK_KEY} if key != default else metadata
                for metadata, key, default in zip(self.chunk_metadata, keys, defaults, strict=True)
            ]

    def _split_metadata(self) -> None:
        """Take the fields of the document out of its metadata, and what most chunks add to these."""
        metadata = json.loads(self.source["metadata_"])
        if not isinstance(metadata, dict):
            raise FormatError(f"The metadata of {self.source['doc_id']!r} are no JSON object. Correct them.")
        self.content: dict[str, Any] = {}
        starts = self.columns.starts[self.first :]
        unplaced = [row for row in range(len(self.keys)) if starts[row] < 0]
        fields = metadata.get(CONTENT)
        if isinstance(fields, dict) and fields and not {self.keys[row] for row in unplaced} & set(fields):
            self.content.update(metadata.pop(CONTENT))
        self.content.update({self.keys[row]: self.columns.texts[self.first + row] for row in unplaced})
        self.metadata = metadata
        self.added = added_metadata(metadata, self.chunk_metadata[0]) if self.chunk_metadata else None

    @cached_property
    def common(self) -> str:
        """The metadata that a chunk without any of its own has."""
        return to_json({**self.metadata, **(self.added or {})})

    def block(self, doc_id: str, policy: str | None) -> str:
        source = self.source
        values: dict[str, str] = {}
        texts = {"checksum": "", "collection": DEFAULT_COLLECTION, "mime": PLAIN_TEXT}
        texts["file_name"] = file_name_of(source["file_path"])
        for name, default in texts.items():
            if source[name] != default:
                values[name] = quoted(source[name])
        for name in ("body_start", "size_bytes", "page_starts"):
            if source[name]:
                values[name] = str(source[name])
        if self.added:
            values["chunk_metadata"] = to_json(self.added)
        if source["modified_at"] is not None:
            values["modified_at"] = quoted(source["modified_at"].isoformat())
        if self.tags:
            values["tags"] = f"[{self.tags}]"
        if source["chunk_policy"] != policy:
            values["chunk_policy"] = to_json(source["chunk_policy"])
        lines = ",\n".join(self._chunk_lines())
        values |= {
            "chunks": f"{{\n{lines}\n  }}" if lines else "{}",
            "content": to_json(self.content) if self.content else "{}",
            "full_text": quoted(source["text"]),
            "id": doc_id,
            "metadata": to_json(self.metadata),
            "source": quoted(source["file_path"]),
        }
        members = ",\n".join(f'  "{name}": {values[name]}' for name in sorted(values))
        return f"{{\n{members}\n}}"

    def _chunk_lines(self) -> list[str]:
        return [
            f"    {key}: {{{self._chunk(number, self.first + number)}}}" for number, key in enumerate(self.json_keys)
        ]

    def _chunk(self, number: int, row: int) -> str:
        """Return the members of a chunk, ``number`` in its document and ``row`` among the vectors."""
        columns = self.columns
        start, end, index = columns.starts[row], columns.ends[row], columns.indexes[row]
        if start >= 0 and self.source["text"][start:end] != columns.texts[row]:
            raise FormatError(
                f"The chunk {columns.node_ids[row]!r} is not the slice [{start}:{end}] of the text of its document. "
                "Prepare the document again; sqlrag check finds such chunks."
            )
        headings, tags, page = columns.headings[row], columns.tags[row], columns.pages[row]
        members = f'"faiss_id": {row}'
        if index != number:
            members = f'"chunk_index": {index}, {members}'
        if headings:
            members += f', "heading_path": [{headings}]'
        members += f', "i_end": {end}, "i_start": {start}' if start >= 0 else ', "i_end": null, "i_start": null'
        metadata = self.chunk_metadata[number]
        if metadata is not self.chunk_metadata[0] or self.added is None:
            own = to_json(metadata)
            members += f', "metadata": {own}' if own != self.common else ""
        if columns.node_ids[row] != f"{self.source['doc_id']}#{index}":
            members += f', "node_id": {quoted(columns.node_ids[row])}'
        members += f', "page": {page}' if page >= 0 else ""
        return members + (f', "tags": [{tags}]' if tags != self.tags else "")


def added_metadata(metadata: dict[str, Any], chunk: dict[str, Any]) -> dict[str, Any] | None:
    """Return what has to be added to the metadata of a document to get those of a chunk; None where that cannot be."""
    if set(metadata) - set(chunk):
        return None
    return {name: value for name, value in chunk.items() if name not in metadata or not _is_same(metadata[name], value)}


def _is_same(one: Any, other: Any) -> bool:
    """Return whether JSON values are equal; Python takes 1 for True."""
    return one == other if isinstance(one, str) else to_json(one) == to_json(other)


def file_name_of(path: str) -> str:
    """Return the last part of a path of any system."""
    return path.replace("\\", "/").rpartition("/")[2]
