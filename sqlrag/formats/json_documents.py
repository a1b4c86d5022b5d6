"""Documents and chunks as JSON, shared by ``.ragmd`` and FAISS + JSON: writing, reading, and the header."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from functools import cached_property, lru_cache
from itertools import pairwise
from json.encoder import encode_basestring as quoted
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sqlrag.engines.contents import SETTINGS, Batch, Contents, has_own_ids
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA
from sqlrag.errors import FormatError
from sqlrag.types import DEFAULT_COLLECTION
from sqlrag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlrag.formats.flat_index import FlatIndex
    from sqlrag.types import Vectors

FORMAT_VERSION = "1.0"

GENERATOR = "sqlrag"

CONTENTS_HASH = "contents_sha256"

_NAMES = {"embedding_model": "model_name", "embedding_dimensions": "embedding_dim"}

_NUMBERS = {"max_tokens", "chunk_size", "chunk_overlap", "header_weight"}

_EMPTY = ("", "{}", "null")

_UTC = "+00:00"

_BOTH = "vectors_sha256 and generator"

Header = dict[str, str | int | bool]


def make_header(contents: Contents, policies: pa.ChunkedArray, index_type: str, vectors_sha256: str) -> Header:
    """Return the header of a file; ``policies`` are those of its documents, of which it has the most frequent."""
    settings = contents.settings
    created_at = settings.get("created_at", "")
    created = created_at.removesuffix(_UTC) + "Z" if created_at.endswith(_UTC) else created_at
    header: Header = {
        "format_version": FORMAT_VERSION,
        "generator": f"{GENERATOR} {__version__}",
        "model_name": settings.get("embedding_model", ""),
        "embedding_dim": contents.dimensions,
        "vector_count": contents.chunks,
        "document_count": contents.documents,
        "index_type": index_type,
    }
    if created or contents.updated_at:
        header |= {"created_at": created or contents.updated_at, "updated_at": contents.updated_at or created}
    if not created_at.endswith(_UTC) and header.get("created_at"):
        header["created_at_text"] = created_at
    rest = [name for name in SETTINGS if name not in {*_NAMES, "created_at", "fingerprint"}]
    for name in (*rest, "fingerprint"):
        value = settings.get(name, "")
        if value not in _EMPTY:
            header[name] = _plain(name, value)
    policy = most_frequent_policy(policies)
    if policy is not None:
        header["chunk_policy"] = policy
    return header | {"normalized": True, "vectors_sha256": vectors_sha256}


def most_frequent_policy(policies: pa.ChunkedArray) -> str | None:
    """Return the policy for documents without one of their own, None if no document has one."""
    counted = Counter(policy for policy in policies.to_pylist() if policy is not None)
    return min(counted, key=lambda policy: (-counted[policy], policy), default=None)


def _plain(name: str, value: str) -> str | int | bool:
    """Return a setting as a bool or an int if that is equivalent."""
    if value in ("True", "False"):
        return value == "True"
    return int(value) if name in _NUMBERS and value.isdecimal() and str(int(value)) == value else value


def read_settings(header: Mapping[str, Any], dimensions: int, where: str) -> dict[str, str]:
    """Return the settings in a header.

    Raises
    ------
    FormatError
        A value has a wrong type, or the version is newer.
    """
    version = text_of(header, "format_version", where) or FORMAT_VERSION
    if version.partition(".")[0] != FORMAT_VERSION.partition(".")[0]:
        raise FormatError(
            f"{where} is of format_version {version!r}; this release reads {FORMAT_VERSION}. Update sqlrag."
        )
    settings = {name: text_of(header, _NAMES.get(name, name), where) for name in SETTINGS}
    created_at = settings["created_at"]
    settings["created_at"] = text_of(header, "created_at_text", where) or (
        created_at.removesuffix("Z") + _UTC if created_at.endswith("Z") else created_at
    )
    settings["embedding_dimensions"] = str(dimensions)
    return {name: value for name, value in settings.items() if value}


def text_of(header: Mapping[str, Any], name: str, where: str) -> str:
    """Return a value as text, "" if it is missing or null."""
    value = header.get(name)
    if value is None:
        return ""
    if isinstance(value, (date, datetime)):  # YAML parses unquoted dates
        return value.isoformat().replace(_UTC, "Z")
    if not isinstance(value, (str, int, float)):
        raise FormatError(f"{where}: {name} must be a text or a number, not a {type(value).__name__}.")
    return str(value)


def count_of(header: Mapping[str, Any], name: str, where: str) -> int | None:
    """Return a number of the header, None if it is missing."""
    value = header.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise FormatError(f"{where}: {name} must be a whole number, not {value!r:.60}.")
    return value


def check_header(header: Mapping[str, Any], found: Mapping[str, object], vectors_sha256: str, where: str) -> None:
    """Raise FormatError if counts, index or vectors are not those of the header."""
    for name, value in found.items():
        named = count_of(header, name, where)
        if named is not None and named != value:
            raise FormatError(
                f"{where}: {name} is {named}, but the file has {value}. It is truncated, edited, or mixed from "
                "two; export it again."
            )
    named_hash = text_of(header, "vectors_sha256", where)
    if named_hash and named_hash != vectors_sha256:
        raise FormatError(
            f"{where}: the vectors are not those of this export (vectors_sha256 differs). They are damaged, "
            "or from another export; export both again."
        )
    if is_ours(header) and not (named_hash and text_of(header, CONTENTS_HASH, where)):
        raise FormatError(
            f"{where}: vectors_sha256 or {CONTENTS_HASH} is missing, which sqlrag writes. Export it again, or remove "
            f"{_BOTH}, too, to read it as it is."
        )


def check_contents_hash(header: Mapping[str, Any], sha256: str, where: str) -> None:
    """Raise FormatError if the text of a file has changed."""
    named = text_of(header, CONTENTS_HASH, where)
    if named and named != sha256:
        raise FormatError(
            f"{where}: the settings, chunks or documents were changed after they were written ({CONTENTS_HASH} "
            f"differs). Export it again, or remove {CONTENTS_HASH}, {_BOTH} to read it as it is."
        )


def is_ours(header: Mapping[str, Any]) -> bool:
    """Return whether sqlrag wrote the file, by what remains of the header."""
    return not header.keys().isdisjoint(("generator", "vectors_sha256"))


PLAIN_TEXT = "text/plain"

CHUNK_KEY = "chunk_key"

"""The field of a chunk's metadata for its key, if that is not ``chunk-`` and its number."""

CONTENT = "content"

"""The field of a document's metadata for its ``content``."""

# One instance, since json.dumps creates an encoder for each call.
_ENCODER = json.JSONEncoder(ensure_ascii=False, sort_keys=True, allow_nan=False)


class DocumentTexts(NamedTuple):
    """JSON without the brackets around it, sorted keys, one chunk a line.

    ``ids`` and ``blocks`` have an entry for each document, ``references`` one for each vector, in their order, with the
    members ``chunk_key`` and ``document_id``.
    """

    ids: list[str]
    blocks: list[str]
    references: list[str]


def default_key(chunk_index: int) -> str:
    """Return the default key of a chunk."""
    return f"chunk-{chunk_index}"


def to_json(value: Any) -> str:
    """Return JSON in one line, with sorted keys.

    Raises
    ------
    FormatError
        The value contains NaN or infinity, which JSON does not have.
    """
    try:
        return _ENCODER.encode(value)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"Metadata contain NaN or infinity, which JSON does not have, or are nested too deep: {error}. "
            "Use null instead."
        ) from error


def write_documents(batch: Batch, policy: str | None) -> DocumentTexts:
    """Return the documents of a batch; ``policy`` is the chunk policy of those without one.

    Raises
    ------
    FormatError
        A document or key occurs twice, a chunk does not match its offsets, or metadata contain NaN.
    """
    columns = _Columns(batch.chunks)
    sources = batch.sources.to_pylist()
    ids = [quoted(source["doc_id"]) for source in sources]
    if len(set(ids)) != len(ids):
        raise FormatError("A document occurs more than once. Each needs a unique id.")
    places = _places(columns.doc_ids)
    blocks: list[str] = []
    references: list[str] = []
    for source, doc_id in zip(sources, ids, strict=True):
        first, last = places.pop(source["doc_id"], (0, 0))
        document = _StoredDocument(source, columns, first, last)
        blocks.append(document.block(doc_id, policy))
        references += [f'"chunk_key": {key}, "document_id": {doc_id}' for key in document.json_keys]
    if places:
        raise FormatError(f"The document {next(iter(places))!r} of a chunk is missing.")
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
    """The columns of chunks as lists; pyarrow converts columns much faster than rows."""

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
    """Return non-negative numbers, with -1 for NULL."""
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


class _StoredDocument:
    """One document to write: its row, and the chunks from row ``first`` to before ``last``."""

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
        """Move the keys of another program out of the metadata, unless two chunks have the same."""
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
        """Move the document's content fields out of its metadata, and find the metadata that chunks add."""
        metadata = json.loads(self.source["metadata_"])
        if not isinstance(metadata, dict):
            raise FormatError(f"The metadata of {self.source['doc_id']!r} are not a JSON object. Correct them.")
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
        """The metadata of a chunk without metadata of its own."""
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
                "Rebuild the document; sqlrag check finds such chunks."
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
    """Return what a chunk's metadata add to those of its document; None if they are not an extension."""
    if set(metadata) - set(chunk):
        return None
    return {name: value for name, value in chunk.items() if name not in metadata or not _is_same(metadata[name], value)}


def _is_same(one: Any, other: Any) -> bool:
    """Return whether JSON values are equal; in Python, 1 == True."""
    return one == other if isinstance(one, str) else to_json(one) == to_json(other)


def file_name_of(path: str) -> str:
    """Return the last part of a path of any system."""
    return path.replace("\\", "/").rpartition("/")[2]


_DOCUMENT_KEYS = {
    *("id", "content", "full_text", "metadata", "source", "chunks"),
    *("body_start", "checksum", "chunk_metadata", "chunk_policy", "collection", "file_name", "mime", "modified_at"),
    *("page_starts", "size_bytes", "tags"),
    *("i_vector_start", "i_vector_end"),  # other programs store the positions of a document's vectors in these
}

_CHUNK_KEYS = {
    *("faiss_id", "id", "i_start", "i_end", "chunk_index", "heading_path", "metadata", "node_id", "page", "tags")
}

_MOST = (1 << 31) - 1


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
            raise FormatError(f"{where}: the document {name!r} occurs more than once. Each needs a unique id.")
        found[name] = document
    if not found:
        raise FormatError(f"{where} contains no document. Export a store that has some.")
    return dict(sorted(found.items()))


class DocumentReader:
    """Documents and chunks from parsed JSON; their vectors are added later.

    Parameters
    ----------
    documents
        An object by id, or a list.
    references
        A list with one object for each vector, in their order.
    policy
        The chunk policy of documents without one.
    where
        The name of the file in messages.

    Raises
    ------
    FormatError
        Something is missing, has a wrong type, occurs twice, or is inconsistent.
    """

    def __init__(self, documents: Any, references: Any, policy: str | None, where: str) -> None:
        by_id = _by_id(documents, where)
        self.documents = {name: _Document(name, document, policy, where) for name, document in by_id.items()}
        self.where = where
        self.rows: list[tuple[Any, ...]] = []
        self._add(references)

    def _add(self, references: Any) -> None:
        """Add the chunk of each reference."""
        if not isinstance(references, list):
            raise FormatError(f"{self.where}: the chunk references must be a list, not {_shown(references)}.")
        chunks = sum(len(document.chunks) for document in self.documents.values())
        if len(references) != chunks:
            raise self._inconsistent(f"{len(references)} chunk references, but {chunks} chunks in the documents")
        for number, reference in enumerate(references):
            if not isinstance(reference, dict):
                raise FormatError(f"{self.where}: chunk reference {number} must be an object, not {_shown(reference)}.")
            if reference.get("faiss_id", number) != number or isinstance(reference.get("faiss_id"), bool):
                raise FormatError(
                    f"{self.where}: chunk reference {number} has faiss_id {_shown(reference['faiss_id'])}; they must "
                    "count from 0, without a gap."
                )
            name = reference.get("document_id")
            document = self.documents.get(name) if isinstance(name, str) else None
            if document is None:
                raise FormatError(
                    f"{self.where}: chunk reference {number} names the document {_shown(name)}, which is missing."
                )
            self.rows.append((document.name, *document.take(reference.get("chunk_key"), number)))

    def batch(self, vectors: Vectors) -> Batch:
        """Return everything in the order of doc_id and chunk_index, with ``[n, dimensions] float32`` vectors.

        Raises
        ------
        FormatError
            The numbers of vectors and chunks differ, or a value cannot be stored.
        """
        if len(vectors) != len(self.rows):
            raise self._inconsistent(f"{len(vectors)} vectors, but {len(self.rows)} chunks")
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

    def _inconsistent(self, what: str) -> FormatError:
        return FormatError(f"{self.where}: {what}. The file is truncated, edited, or mixed from two; export it again.")

    def contents(self, header: Mapping[str, Any], index: FlatIndex, vectors_sha256: str) -> Contents:
        """Return everything with the vectors of an index, after a check against the header of the file.

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
                f"{self.where}, document {named!r}: only chunks of an upgraded store or of nodes with "
                "ids of their own have a node_id. Remove it."
            )
        updated_at = text_of(header, "updated_at", self.where)
        return Contents(settings, len(batch.sources), len(batch.chunks), [batch], updated_at, self.notices())

    def notices(self) -> list[str]:
        """Return notices about what was left out."""
        unknown = set().union(*(document.unknown for document in self.documents.values()))
        notices = [f"Unknown keys were left out: {', '.join(sorted(unknown))}."] if unknown else []
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
    """One document to read, whose chunks are taken one by one."""

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
            raise self.error(f"chunk_policy must be a string of JSON, not {_shown(self.policy)}")
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
            raise self.error(f"{key} must be a whole number of 0 or more, not {_shown(number)}")
        return number

    def _json(self, metadata: dict[str, Any]) -> str:
        try:
            return _ENCODER.encode(metadata)
        except (ValueError, RecursionError) as error:  # a number such as 1e999
            raise self.error(f"metadata contain a number that is too large, or are nested too deep: {error}") from error

    def take(self, key: Any, number: int) -> tuple[Any, ...]:
        """Return the columns of a chunk, without the first, ``doc_id``."""
        chunk = self.chunks.get(key) if isinstance(key, str) else None
        if not isinstance(chunk, dict):
            raise self.error(f"there is no chunk {_shown(key)}, which chunk reference {number} names")
        if key in self.taken:
            raise self.error(f"two chunk references name the chunk {key!r}")
        faiss_id = chunk.get("faiss_id", chunk.get("id"))
        # Other programs may write -1.
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
            raise self.error(f"chunk {key!r} has no offsets, and content has no text of this name but {_shown(text)}")
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
            return time.astimezone(UTC).replace(tzinfo=None) if time.tzinfo else time
        except (ValueError, OverflowError) as error:
            raise self.error(f"modified_at is not a time: {value!r:.60}") from error

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
