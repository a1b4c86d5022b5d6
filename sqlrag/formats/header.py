"""What a file of JSON documents says of itself: the front matter of ``.ragmd``, the first keys of FAISS + JSON."""

from __future__ import annotations

from collections import Counter
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import sqlrag
from sqlrag.errors import FormatError
from sqlrag.formats.contents import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from sqlrag.formats.contents import Contents

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
    """Return the header of a file; ``policies`` are those of its documents, the most frequent of which stands in it."""
    settings = contents.settings
    created_at = settings.get("created_at", "")
    created = created_at.removesuffix(_UTC) + "Z" if created_at.endswith(_UTC) else created_at
    header: Header = {
        "format_version": FORMAT_VERSION,
        "generator": f"{GENERATOR} {sqlrag.__version__}",
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
    """Return the policy that documents without one of their own have, None where no document has one."""
    counted = Counter(policy for policy in policies.to_pylist() if policy is not None)
    return min(counted, key=lambda policy: (-counted[policy], policy), default=None)


def _plain(name: str, value: str) -> str | int | bool:
    """Return a setting as the value that a person would write, where it says the same."""
    if value in ("True", "False"):
        return value == "True"
    return int(value) if name in _NUMBERS and value.isdecimal() and str(int(value)) == value else value


def read_settings(header: Mapping[str, Any], dimensions: int, where: str) -> dict[str, str]:
    """Return the settings that a header holds.

    Raises
    ------
    FormatError
        A value is of the wrong type, or the version is a later one.
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
    """Return a value as text, "" where it is missing or null."""
    value = header.get(name)
    if value is None:
        return ""
    if isinstance(value, (date, datetime)):  # YAML makes them of what is not quoted
        return value.isoformat().replace(_UTC, "Z")
    if not isinstance(value, (str, int, float)):
        raise FormatError(f"{where}: {name} must be a text or a number, not a {type(value).__name__}.")
    return str(value)


def count_of(header: Mapping[str, Any], name: str, where: str) -> int | None:
    """Return a number of the header, None where it is missing."""
    value = header.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise FormatError(f"{where}: {name} must be a whole number, not {value!r:.60}.")
    return value


def check_header(header: Mapping[str, Any], found: Mapping[str, object], vectors_sha256: str, where: str) -> None:
    """Raise FormatError where a header names other counts, another index or other vectors than there are."""
    for name, value in found.items():
        named = count_of(header, name, where)
        if named is not None and named != value:
            raise FormatError(
                f"{where}: {name} is {named}, but the file holds {value}. It is cut short, edited, or put together of "
                "two; export it again."
            )
    named_hash = text_of(header, "vectors_sha256", where)
    if named_hash and named_hash != vectors_sha256:
        raise FormatError(
            f"{where}: the vectors are not those that were written with it (vectors_sha256 differs). They are damaged, "
            "or of another export; export both again."
        )
    if is_ours(header) and not (named_hash and text_of(header, CONTENTS_HASH, where)):
        raise FormatError(
            f"{where}: vectors_sha256 or {CONTENTS_HASH} is missing, which sqlrag writes. Export it again, or take out "
            f"{_BOTH} too, to read it as it stands."
        )


def check_contents_hash(header: Mapping[str, Any], sha256: str, where: str) -> None:
    """Raise FormatError where the text of a file is not what was written."""
    named = text_of(header, CONTENTS_HASH, where)
    if named and named != sha256:
        raise FormatError(
            f"{where}: the settings, chunks or documents were changed after they were written ({CONTENTS_HASH} "
            f"differs). Export it again, or take out {CONTENTS_HASH}, {_BOTH} to read it as it stands."
        )


def is_ours(header: Mapping[str, Any]) -> bool:
    """Return whether sqlrag wrote the file, or what is left of such a file."""
    return not header.keys().isdisjoint(("generator", "vectors_sha256"))
