"""What a file says of itself: the table ``embedding_metadata``."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Literal

import duckdb

import sqlrag
from sqlrag.errors import StoreError
from sqlrag.store.lexical import DEFAULT_STEMMER, stemmers
from sqlrag.store.schema import SCHEMA_VERSION, read_sql
from sqlrag.types import ChunkPolicy, ModelIdentity

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlrag.store.database import Database

# The version of the published layout (sqlrooms-rag 0.1.2) that the keys and the first five columns follow.
PUBLISHED_VERSION = "1.0.0"

# The provider of a file whose vectors were given ready-made.
GIVEN = "given"

# The key of a file that holds chunks whose node_id is not their document and place.
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
    """Return every key with its value, or raise StoreError where one is missing or unusable that a search needs."""
    try:
        metadata = read_metadata(database.cursor())
        float(metadata["header_weight"])
        model_identity(metadata)
        if metadata["stemmer"] not in stemmers():
            raise ValueError(f"there is no stemmer {metadata['stemmer']}")
    except (KeyError, ValueError, TypeError, duckdb.Error) as error:
        raise StoreError(
            database.path,
            f"{database.path}: embedding_metadata is incomplete or damaged: {error}. Prepare the file again.",
        ) from error
    return metadata


def refresh_counts(con: duckdb.DuckDBPyConnection) -> None:
    """Take the keys that count rows and characters afresh from the tables, inside the caller's transaction."""
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
    """Return the keys that a new file gets: the published ones that do not count anything, then ours."""
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
        "sqlrag_version": sqlrag.__version__,
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
    """Return the keys of a file of ready-made vectors of which nothing else is known."""
    created_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
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
    """Return the keys that say how the documents are cut."""
    return {
        "chunking_strategy": _STRATEGY_NAMES[policy.strategy],
        "chunk_size": policy.chunk_size,
        "chunk_overlap": policy.chunk_overlap,
        "chunk_unit": policy.chunk_unit,
        "include_headers": policy.include_headers,
        "chunk_policy_hash": hashlib.sha256(policy_text(policy).encode()).hexdigest(),
    }


def chunk_policy(metadata: Mapping[str, str]) -> ChunkPolicy:
    """Return how the documents of a file are cut."""
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
    """Return the model that a file was filled with."""
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


def nested_metadata(flat: Mapping[str, str]) -> dict[str, Any]:
    """Return the keys grouped as the published package returns them, each in its own type, and ours under "store"."""

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
        created_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        llama_index_compatible=llama_index_compatible,
    )
    with database.transaction() as con:
        write_metadata(con, values)


def now() -> datetime:
    """Return the time of now in UTC, without its zone, as the tables hold it."""
    return datetime.now(timezone.utc).replace(tzinfo=None)
