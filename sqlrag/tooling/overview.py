"""What a file is about, for one who is to search it: its collections, tags and metadata fields."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlrag import Store

MOST = 100  # names of a kind

_KINDS = {
    "collections": "SELECT collection AS name, count(DISTINCT doc_id), count(*) FROM documents GROUP BY name",
    "tags": "SELECT name, count(DISTINCT doc_id), count(*) FROM (SELECT doc_id, unnest(tags) AS name FROM documents) "
    "GROUP BY name",
    "metadata_fields": "SELECT name, count(DISTINCT doc_id), count(*) FROM "
    "(SELECT doc_id, unnest(json_keys(public_metadata(metadata_))) AS name FROM documents) GROUP BY name",
}


def overview(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Return the collections, tags and metadata fields, each with its documents and chunks, the most used first.

    Of each kind there are at most :data:`MOST`.
    """
    cursor = store.cursor()
    return {
        kind: [
            {"name": name, "documents": documents, "chunks": chunks}
            for name, documents, chunks in cursor.execute(f"{sql} ORDER BY 3 DESC, 1 LIMIT {MOST}").fetchall()
        ]
        for kind, sql in _KINDS.items()
    }
