"""What a file records about itself: ``embedding_metadata``, its runs, failures and collections."""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

import duckdb

from sqlrag.embedders.base import GIVEN
from sqlrag.engines.duckdb.lexical import DEFAULT_STEMMER, stemmers
from sqlrag.engines.duckdb.schema import SCHEMA_VERSION, read_sql
from sqlrag.errors import StoreError
from sqlrag.types import DEFAULT_COLLECTION, ChunkPolicy, ModelIdentity
from sqlrag.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from sqlrag.engines.duckdb.database import Database

# The version of the published layout (sqlrooms-rag 0.1.2) that the keys and the first five columns follow.
PUBLISHED_VERSION = "1.0.0"

# The keys of what was read of each folder the last time: by which patterns, and leaving out what.
PATTERNS, IGNORED = "patterns", "ignored"

WITH_MARKUP = "vectors_with_markup"

"""The key of ``embedding_metadata`` where vectors were made of texts with their markup, by an older release."""

VECTORS_WITH_MARKUP = (
    "The vectors were made of texts with their markup, by an older sqlrag; words are searched in the visible text. "
    "sqlrag reembed renews them."
)

# The key of a file with chunks whose node_id is not their document and position.
OWN_IDS = "own_node_ids"

_STRATEGY_NAMES: dict[Literal["markdown", "size"], str] = {"markdown": "markdown-aware", "size": "size-based"}


def write_metadata(con: duckdb.DuckDBPyConnection, values: Mapping[str, object]) -> None:
    """Set keys of ``embedding_metadata``, inside the caller's transaction."""
    # One statement for all keys: one for each would take a fifth of the time that a new file takes.
    con.execute(
        "INSERT OR REPLACE INTO embedding_metadata SELECT "
        "unnest(CAST($1 AS VARCHAR[])), unnest(CAST($2 AS VARCHAR[])), CAST(now() AT TIME ZONE 'UTC' AS TIMESTAMP)",
        [list(values), [str(value) for value in values.values()]],
    )


def read_metadata(con: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Return every key with its value, in the order of the keys."""
    return dict(con.execute("SELECT key, value FROM embedding_metadata ORDER BY key").fetchall())


def required_metadata(database: Database) -> dict[str, str]:
    """Return every key with its value, or raise StoreError where one that is needed is missing or unusable.

    Counts are not needed here; see :func:`nested_metadata`.
    """
    try:
        metadata = read_metadata(database.cursor())
    except duckdb.Error as error:
        raise _damaged(database.path, str(error), "Prepare the file again.") from error
    check_metadata(database.path, metadata)
    return metadata


def check_metadata(path: object, metadata: Mapping[str, str]) -> None:
    """Raise StoreError where a key that is needed is missing, or a value is unusable that is no count."""
    missing = [f"{key} is missing" for key in _NEEDED if key not in metadata]
    wrong = [reason for key, reason in unusable_metadata(metadata).items() if key not in _COUNTS]
    if missing or wrong:
        raise _damaged(path, "; ".join([*missing, *wrong][:3]))


_NEEDED = ("embedding_provider", "embedding_model", "embedding_dimensions", "header_weight", "stemmer")

_POLICY = ("chunking_strategy", "chunk_size")

_COUNTS = (
    *("unique_files", "source_total_characters", "chunks_total_characters", "total_chunks", "total_source_documents"),
    *("min_chunk_size", "max_chunk_size", "median_chunk_size", "mean_chunk_size"),
)

_TEXTS = ("version", "created_at", "embedding_provider", "embedding_model", "query_prefix", "passage_prefix")

_FLAGS = (
    *("include_headers", "hybrid_search_enabled", "fts_enabled", "source_documents_stored", "llama_index_compatible"),
    *("normalized", OWN_IDS),
)


def unusable_metadata(metadata: Mapping[str, str | None], dimensions: int | None = None) -> dict[str, str]:
    """Return the keys whose values are of no use, with the reason; ``dimensions`` are those of the vectors."""
    valid: dict[str, tuple[Callable[[str], bool], str]] = {
        **dict.fromkeys(_COUNTS, (_is_number, "a number of 0 or more")),
        **dict.fromkeys(_FLAGS, (("True", "False").__contains__, "True or False")),
        **dict.fromkeys(_TEXTS, (_is_text, "a text")),
        "embedding_dimensions": (lambda value: _is_whole(value) and int(value) > 0, "a whole number of 1 or more"),
        "max_tokens": (_is_whole, "a whole number of 0 or more"),
        "chunk_size": (lambda value: _is_whole(value) and int(value) > 0, "a whole number of 1 or more"),
        "chunk_overlap": (_is_whole, "a whole number of 0 or more"),
        "chunk_unit": (("tokens", "chars").__contains__, "tokens or chars"),
        "chunking_strategy": (list(_STRATEGY_NAMES.values()).__contains__, " or ".join(_STRATEGY_NAMES.values())),
        "header_weight": (_is_number, "a number of 0 or more"),
        "stemmer": (lambda value: value in stemmers(), "a stemmer"),
        "fingerprint": (lambda value: _is_fingerprint(value, metadata), "null or a vector of length 1"),
        "embedding_options": (lambda value: isinstance(json.loads(value), dict), "an object in JSON"),
    }
    result = {}
    for key, (holds, wanted) in valid.items():
        if key in metadata and not _holds(holds, metadata[key]):
            result[key] = f"{key} is {metadata[key]!r:.40}, not {wanted}"
    found = metadata.get("embedding_dimensions")
    if dimensions is not None and "embedding_dimensions" not in result and found and int(found) != dimensions:
        result["embedding_dimensions"] = f"embedding_dimensions is {found}, but the vectors have {dimensions}"
    return dict(sorted(result.items()))


def _holds(rule: Callable[[str], bool], value: str | None) -> bool:
    try:
        return value is not None and rule(value)
    except (ValueError, TypeError, RecursionError):
        return False


def _is_text(value: str) -> bool:
    return isinstance(value, str)


def _is_whole(value: str) -> bool:
    return value.isascii() and value.isdecimal() and len(value) < 16


def _is_number(value: str) -> bool:
    return 0 <= float(value) < float("inf")


def _is_fingerprint(value: str, metadata: Mapping[str, str | None]) -> bool:
    vector = json.loads(value)
    # A tolerance, since its numbers are rounded to six decimals.
    return vector is None or (
        len(vector) == int(metadata.get("embedding_dimensions") or 0) and abs(math.hypot(*vector) - 1) < 0.01
    )


def _damaged(path: object, reason: str, remedy: str = "") -> StoreError:
    remedy = remedy or f"sqlrag check {path} names all of it, sqlrag repair {path} sets the defaults."
    return StoreError(path, f"{path}: embedding_metadata is incomplete or damaged: {reason}. {remedy}")


def refresh_counts(con: duckdb.DuckDBPyConnection) -> None:
    """Recompute the keys that count rows and characters, inside the caller's transaction."""
    con.execute(read_sql("index/refresh_counts"))


def initial_metadata(
    identity: ModelIdentity,
    policy: ChunkPolicy,
    *,
    header_weight: float,
    stemmer: str,
    created_at: str,
    llama_index_compatible: bool,
) -> dict[str, object]:
    """Return the keys that a new file gets: the published ones without counts, then ours."""
    return {
        "version": PUBLISHED_VERSION,
        "created_at": created_at,
        **identity_metadata(identity),
        **policy_metadata(policy),
        "header_weight": int(header_weight) if float(header_weight).is_integer() else header_weight,
        "hybrid_search_enabled": True,
        "fts_enabled": True,
        "source_documents_stored": True,
        "schema_version": SCHEMA_VERSION,
        "sqlrag_version": __version__,
        "duckdb_version": duckdb.__version__,
        "stemmer": stemmer,
        "llama_index_compatible": llama_index_compatible,
        "normalized": True,
    }


def identity_metadata(identity: ModelIdentity) -> dict[str, object]:
    """Return the keys that say which model made the vectors."""
    return {
        "embedding_provider": identity.provider,
        "embedding_model": identity.model_name,
        "embedding_dimensions": identity.dimensions,
        "max_tokens": identity.max_tokens,
        "query_prefix": identity.query_prefix,
        "passage_prefix": identity.passage_prefix,
        "fingerprint": json.dumps(
            None if identity.fingerprint is None else [round(x, 6) for x in identity.fingerprint]
        ),
        "embedding_revision": identity.revision,
        "embedding_options": json.dumps(dict(identity.options), sort_keys=True),
    }


def default_metadata(dimensions: int) -> dict[str, object]:
    """Return the keys of a file of precomputed vectors of which nothing else is known."""
    created_at = datetime.now(UTC).isoformat(timespec="seconds")
    identity = ModelIdentity(GIVEN, GIVEN, dimensions)
    return initial_metadata(
        identity,
        ChunkPolicy(),
        header_weight=3,
        stemmer=DEFAULT_STEMMER,
        created_at=created_at,
        llama_index_compatible=True,
    )


def policy_metadata(policy: ChunkPolicy) -> dict[str, object]:
    """Return the keys that say how the documents are chunked."""
    return {
        "chunking_strategy": _STRATEGY_NAMES[policy.strategy],
        "chunk_size": policy.chunk_size,
        "chunk_overlap": policy.chunk_overlap,
        "chunk_unit": policy.chunk_unit,
        "include_headers": policy.include_headers,
        "chunk_policy_hash": hashlib.sha256(policy_text(policy).encode()).hexdigest(),
    }


def chunk_policy_of(path: object, metadata: Mapping[str, str]) -> ChunkPolicy:
    """Return how the documents of a store are chunked, or raise StoreError where it does not say so."""
    try:
        return chunk_policy(metadata)
    except KeyError as error:
        raise _damaged(path, f"{error.args[0]!r} is missing or unknown") from error
    except ValueError as error:
        raise _damaged(path, str(error)) from error


def chunk_policy(metadata: Mapping[str, str]) -> ChunkPolicy:
    """Return how the documents of a file are chunked."""
    strategies = {name: strategy for strategy, name in _STRATEGY_NAMES.items()}
    return ChunkPolicy(
        strategy=strategies[metadata["chunking_strategy"]],
        chunk_size=int(metadata["chunk_size"]),
        chunk_overlap=int(metadata["chunk_overlap"]),
        chunk_unit="chars" if metadata["chunk_unit"] == "chars" else "tokens",
        include_headers=metadata["include_headers"] == "True",
    )


def policy_text(policy: ChunkPolicy) -> str:
    """Return a policy as it stands in ``source_documents.chunk_policy``, equal for equal policies."""
    return json.dumps(asdict(policy), sort_keys=True)


def model_identity(metadata: Mapping[str, str]) -> ModelIdentity:
    """Return the model of a file's vectors."""
    fingerprint = json.loads(metadata.get("fingerprint", "null"))
    return ModelIdentity(
        provider=metadata["embedding_provider"],
        model_name=metadata["embedding_model"],
        dimensions=int(metadata["embedding_dimensions"]),
        max_tokens=int(metadata.get("max_tokens", 0)),
        query_prefix=metadata.get("query_prefix", ""),
        passage_prefix=metadata.get("passage_prefix", ""),
        fingerprint=None if fingerprint is None else tuple(fingerprint),
        revision=metadata.get("embedding_revision", ""),
        options=dict(json.loads(metadata.get("embedding_options", "{}"))),
    )


def nested_metadata(flat: Mapping[str, str], path: object) -> dict[str, Any]:
    """Return the keys grouped as the published package returns them, each in its own type, and ours under "store".

    Raises
    ------
    StoreError
        A value of the store ``path`` is unusable, or one that it needs is missing.
    """
    missing = [f"{key} is missing" for key in (*_NEEDED, "version", "created_at", *_POLICY) if key not in flat]
    if wrong := [*missing, *unusable_metadata(flat).values()]:
        raise _damaged(path, "; ".join(wrong[:3]))

    def number(key: str) -> int | float:
        value = float(flat.get(key, "0"))
        return int(value) if value.is_integer() else value

    def flag(key: str) -> bool:
        return flat.get(key, "False") == "True"

    return {
        "version": flat["version"],
        "created_at": flat["created_at"],
        "embedding": {
            "provider": flat["embedding_provider"],
            "model": flat["embedding_model"],
            "dimensions": number("embedding_dimensions"),
            "max_tokens": number("max_tokens"),
            "query_prefix": flat.get("query_prefix", ""),
            "passage_prefix": flat.get("passage_prefix", ""),
            "normalized": flag("normalized"),
        },
        "chunking": {
            "strategy": flat["chunking_strategy"],
            "chunk_size": number("chunk_size"),
            "chunk_overlap": number("chunk_overlap"),
            "chunk_unit": flat.get("chunk_unit", "tokens"),
            "include_headers": flag("include_headers"),
            "header_weight": number("header_weight"),
        },
        "source_documents": {
            "total_documents": number("total_source_documents"),
            "unique_files": number("unique_files"),
            "total_characters": number("source_total_characters"),
        },
        "chunks": {
            "total_chunks": number("total_chunks"),
            "min_chunk_size": number("min_chunk_size"),
            "max_chunk_size": number("max_chunk_size"),
            "median_chunk_size": number("median_chunk_size"),
            "mean_chunk_size": number("mean_chunk_size"),
            "total_characters": number("chunks_total_characters"),
        },
        "capabilities": {
            "hybrid_search": flag("hybrid_search_enabled"),
            "fts_enabled": flag("fts_enabled"),
            "source_documents_stored": flag("source_documents_stored"),
        },
        "store": {
            key: flat[key] for key in ("schema_version", "sqlrag_version", "duckdb_version", "stemmer") if key in flat
        },
    }


def initialize(
    database: Database,
    identity: ModelIdentity,
    policy: ChunkPolicy,
    *,
    heading_weight: float,
    stemmer: str,
    llama_index_compatible: bool = True,
) -> None:
    """Write the metadata of a new file."""
    values = initial_metadata(
        identity,
        policy,
        header_weight=heading_weight,
        stemmer=stemmer,
        created_at=datetime.now(UTC).isoformat(timespec="seconds"),
        llama_index_compatible=llama_index_compatible,
    )
    with database.transaction() as con:
        write_metadata(con, values)


def now() -> datetime:
    """Return the current time in UTC, without its zone, as the tables have it."""
    return datetime.now(UTC).replace(tzinfo=None)


def new_run_id(started: datetime) -> str:
    """Return a unique id for a run."""
    return f"{started.isoformat()}-{secrets.token_hex(3)}"


@dataclass(frozen=True)
class RunRow:
    """One row of ``ingest_log``."""

    run_id: str
    kind: str
    started_at: datetime
    input_dir: str = ""
    collection: str = ""
    files: int = 0
    documents: int = 0
    removed: int = 0
    chunks: int = 0
    embedded: int = 0
    embedding_calls: int = 0
    reused: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: Mapping[str, float] = field(default_factory=dict)


def log_run(con: duckdb.DuckDBPyConnection, run: RunRow) -> None:
    """Write the row of a run that ends now, inside the caller's transaction."""
    seconds = {stage: round(value, 3) for stage, value in run.seconds.items()}
    values = {**vars(run), "finished_at": now(), "seconds": json.dumps(seconds)}
    con.execute(
        "INSERT INTO ingest_log (run_id, kind, started_at, finished_at, input_dir, collection, files, documents, "
        "removed, chunks, embedded, embedding_calls, reused, failed, skipped, seconds) VALUES ($run_id, $kind, "
        "$started_at, $finished_at, $input_dir, $collection, $files, $documents, $removed, $chunks, $embedded, "
        "$embedding_calls, $reused, $failed, $skipped, $seconds)",
        values,
    )


def record_failures(con: duckdb.DuckDBPyConnection, failures: Sequence[tuple[str, str, str]]) -> None:
    """Write what failed (doc_id, status, reason) in place of earlier records, inside the caller's transaction."""
    # One statement: where a provider fails, there may be as many as files. The last one of a document counts.
    rows = list({doc_id: (doc_id, status, reason) for doc_id, status, reason in failures}.values())
    if rows:
        given = [*map(list, zip(*rows, strict=True)), now()]
        new = "(SELECT unnest($1) AS doc_id, unnest($2) AS status, unnest($3) AS reason, $4::TIMESTAMP AS failed_at)"
        # INSERT OR REPLACE would put the rows in an order that changes from run to run.
        con.execute(
            f"UPDATE ingest_failures AS f SET status = n.status, reason = n.reason, failed_at = n.failed_at FROM {new} "  # noqa: S608
            "AS n WHERE n.doc_id = f.doc_id",
            given,
        )
        con.execute(
            f"INSERT INTO ingest_failures SELECT * FROM {new} AS n "  # noqa: S608
            "WHERE n.doc_id NOT IN (SELECT doc_id FROM ingest_failures) ORDER BY n.doc_id",
            given,
        )


def clear_failures(con: duckdb.DuckDBPyConnection, doc_ids: Iterable[str]) -> None:
    """Delete the failures of documents that are now sound or gone, inside the caller's transaction."""
    con.execute("DELETE FROM ingest_failures WHERE doc_id IN (SELECT unnest($1))", [list(doc_ids)])


def clear_failures_of_rows(con: duckdb.DuckDBPyConnection, collection: str) -> None:
    """Delete the failures of the rows of a table, inside the caller's transaction."""
    con.execute("DELETE FROM ingest_failures WHERE starts_with(doc_id, $1)", [f"{collection}/"])


def failed_documents(con: duckdb.DuckDBPyConnection, collection: str) -> list[str]:
    """Return the ids of the documents of a collection that failed when they were last read."""
    prefixes = [f"{name}:" for (name,) in con.execute("SELECT collection FROM collections").fetchall()]
    mine = f"{collection}:"
    return [
        doc_id
        for (doc_id,) in con.execute("SELECT doc_id FROM ingest_failures ORDER BY doc_id").fetchall()
        if (doc_id.startswith(mine) if collection != DEFAULT_COLLECTION else not doc_id.startswith(tuple(prefixes)))
    ]


def given_failures(con: duckdb.DuckDBPyConnection, collection: str) -> set[str]:
    """Return the ids of what failed in no run that read a folder into a collection: given as bytes, or as rows."""
    # A failure is recorded just before the run that found it.
    rows = con.execute(
        "SELECT f.doc_id FROM ingest_failures AS f ASOF JOIN ingest_log AS l ON f.failed_at <= l.finished_at "
        "WHERE l.input_dir = '' OR l.collection <> $1 ORDER BY f.doc_id",
        [collection],
    ).fetchall()
    return {str(doc_id) for (doc_id,) in rows}


def folder_of(con: duckdb.DuckDBPyConnection, collection: str) -> str | None:
    """Return the folder that a collection was last read from."""
    row = con.execute("SELECT input_dir FROM collections WHERE collection = $1", [collection]).fetchone()
    return None if row is None else str(row[0])


def patterns_of(con: duckdb.DuckDBPyConnection) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return the patterns by which folders were last read, and those that were ignored, by ``collection:folder``."""
    known = read_metadata(con)
    return json.loads(known.get(PATTERNS, "{}")), json.loads(known.get(IGNORED, "{}"))


def record_patterns(
    con: duckdb.DuckDBPyConnection,
    collection: str,
    input_dir: str,
    patterns: Sequence[str] | None,
    ignore: Sequence[str] | None,
) -> None:
    """Record by which patterns a folder was read and what was ignored, inside the caller's transaction."""
    place = f"{collection}:{input_dir}"
    for key, before, given in zip((PATTERNS, IGNORED), patterns_of(con), (patterns, ignore), strict=True):
        now_known = {one: value for one, value in before.items() if one != place}
        if given and any(given):
            now_known[place] = [given] if isinstance(given, str) else list(given)
        if now_known != before:
            write_metadata(con, {key: json.dumps(now_known, ensure_ascii=False)})


def record_collection(con: duckdb.DuckDBPyConnection, collection: str, input_dir: str) -> None:
    """Record the folder that a collection was last read from, inside the caller's transaction."""
    # What came without a folder, from another format, must not be taken for documents of this one.
    before = folder_of(con, collection) or "?"
    if input_dir or before != "?":
        con.execute(read_sql("index/absolute_paths"), {"collection": collection, "root": before})
    con.execute(
        "INSERT INTO collections VALUES ($1, $2, $3) ON CONFLICT DO UPDATE SET input_dir = excluded.input_dir",
        [collection, input_dir, now()],
    )


def shorten_paths(con: duckdb.DuckDBPyConnection, collection: str, *roots: str) -> None:
    """Let the paths of documents begin below the folder of their collection, inside the caller's transaction.

    ``roots`` are names of that folder. Where it is stands in ``collections`` alone, which no export has.
    """
    con.execute(read_sql("index/relative_paths"), {"collection": collection, "roots": list(roots)})


def folders(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """Return the collections that were read from a folder with the last one of each, in their order."""
    statement = "SELECT collection, input_dir FROM collections WHERE input_dir <> '' ORDER BY collection"
    return con.execute(statement).fetchall()


def earlier_folders(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """Return the folders that collections were read from before, or by patterns, which may be gone: as above."""
    places = {place for known in patterns_of(con) for place in known}
    return [(name, path) for name, _, path in (place.partition(":") for place in sorted(places))]


def known_folders(con: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    """Return the folders of :func:`folders` and :func:`earlier_folders`, each once, in order."""
    return sorted({*folders(con), *earlier_folders(con)})


def keep_folder(con: duckdb.DuckDBPyConnection, collection: str, folder: str) -> None:
    """Have a folder known when its collection is read from another one, inside the caller's transaction."""
    patterns, _ = patterns_of(con)
    if f"{collection}:{folder}" not in patterns:
        patterns[f"{collection}:{folder}"] = []
        write_metadata(con, {PATTERNS: json.dumps(patterns, ensure_ascii=False)})


def forget_collections(con: duckdb.DuckDBPyConnection) -> None:
    """Delete the collections without a document and without a folder, inside the caller's transaction.

    A folder is read again by the next update, which may find documents.
    """
    con.execute(
        "DELETE FROM collections WHERE input_dir = '' AND collection NOT IN (SELECT collection FROM source_documents)"
    )


def forget_folders(con: duckdb.DuckDBPyConnection, gone: Sequence[tuple[str, str]]) -> None:
    """Have updates not read those folders of collections any more, inside the caller's transaction.

    None of their documents is left.
    """
    for one in gone:
        con.execute("UPDATE collections SET input_dir = '' WHERE collection = $1 AND input_dir = $2", list(one))
    forget_collections(con)
    for key, known in zip((PATTERNS, IGNORED), patterns_of(con), strict=True) if gone else ():
        left = {place: value for place, value in known.items() if tuple(place.split(":", 1)) not in gone}
        if left != known:
            write_metadata(con, {key: json.dumps(left, ensure_ascii=False)})
