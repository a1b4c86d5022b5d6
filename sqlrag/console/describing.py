"""What ``sqlrag info`` tells of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlrag.console.printing import size
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sqlrag.retrieval.store import Store


def describe(store: Store) -> dict[str, Any]:
    """Return the facts about an open file: its metadata, its size, and what its tables hold."""

    def rows(sql: str) -> list[dict[str, Any]]:
        cursor = store.cursor().execute(sql)
        names = [column[0] for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    return {
        "path": str(store.path),
        "size_bytes": store.path.stat().st_size,
        **store.get_embedding_metadata(),
        "corpus": rows("FROM corpus_stats")[0],
        "collections": rows(
            "SELECT collection, count(*) AS documents, CAST(sum(chunks) AS BIGINT) AS chunks FROM sources "
            "GROUP BY collection ORDER BY collection"
        ),
        "indexes": rows("SELECT index_name, chunks, indexed, in_step FROM index_status ORDER BY index_name"),
        "map": next(iter(rows("SELECT * EXCLUDE created_at FROM map_status")), None),
        "queries_embedded": rows("SELECT count(*) AS n FROM query_embeddings")[0]["n"],
        "failures": rows("SELECT doc_id, status, reason FROM ingest_failures ORDER BY doc_id"),
    }


def description(facts: Mapping[str, Any]) -> str:
    """Say the facts in lines for a terminal."""
    embedding, chunking, corpus, store = (facts[key] for key in ("embedding", "chunking", "corpus", "store"))
    window = f", window {embedding['max_tokens']:,} tokens" if embedding["max_tokens"] else ""
    collections = [
        f"{c['collection']} ({counted(c['documents'], 'document')}, {counted(c['chunks'], 'chunk')})"
        for c in facts["collections"]
    ]
    sizes = facts["chunks"]
    headings = "embedded" if chunking["include_headers"] else "not embedded"
    indexes = [f"{i['index_name']} {'in step' if i['in_step'] else 'OUT OF STEP'}" for i in facts["indexes"]]
    table = {
        "file": f"{facts['path']} ({size(facts['size_bytes'])})",
        "made": f"{facts['created_at']} by sqlrag {store['sqlrag_version']}, DuckDB {store['duckdb_version']}, "
        f"schema {store['schema_version']}",
        "model": f"{embedding['model']} ({embedding['provider']}, {embedding['dimensions']} dimensions{window})",
        "documents": f"{corpus['documents']:,} ({counted(corpus['characters'], 'character')})",
        "chunks": f"{corpus['chunks']:,} ({sizes['min_chunk_size']:,} to {sizes['max_chunk_size']:,} characters, "
        f"median {sizes['median_chunk_size']:,})",
        "chunking": f"{chunking['strategy']}, at most {chunking['chunk_size']} {chunking['chunk_unit']}, "
        f"overlap {chunking['chunk_overlap']}, headings {headings}, "
        f"heading weight {chunking['header_weight']}",
        "words": f"{counted(corpus['terms'], 'term')}, stemmer {store['stemmer']}",
        "collections": ", ".join(collections) or "none",
        "indexes": ", ".join(indexes),
        "map": _map(facts["map"]),
        "questions": f"{facts['queries_embedded']:,} embedded for the shell",
        "failures": f"{len(facts['failures']):,}",
    }
    lines = [f"{name:<12} {value}" for name, value in table.items()]
    return "\n".join([*lines, *(f"  {f['status']}: {f['doc_id']}: {f['reason']}" for f in facts["failures"])])


def _map(status: Mapping[str, Any] | None) -> str:
    if status is None:
        return "none"
    later = f", {counted(status['missing'], status['level'])} written since" if status["missing"] else ""
    return f"{counted(status['points'], status['level'])} by {status['method']}{later}"
