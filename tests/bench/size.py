"""What a store's bytes are spent on, by groups of columns, and how many there are beyond the text and the vectors.

python -m tests.bench.size [--sizes 10000,100000] [--db FILE,FILE] [--changes 50]

Stores are filled by one upsert, by an upsert for every 20,000 chunks, and as prepare_embeddings does it (see
``ingest``); then so many documents of 20 chunks are replaced. Bytes of columns are those of their segments as DuckDB's
storage_info tells them, a segment reaching to the next one in its block. "beyond" is the file less the UTF-8 bytes of
the chunks' text and 4 bytes for each number of a vector; the aim is half of the text and 100 bytes a chunk.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from pathlib import Path

import duckdb

from sqlrag import Store
from tests.bench.common import environment, markdown_table
from tests.bench.corpora import DIMENSIONS, PER_DOCUMENT, SEED, WHAT, batches, rows_of
from tests.bench.ingest import WAYS, store_all

# Table and column (a beginning is enough) to the line of the table; the first that fits.
GROUPS = [
    ("documents.text", "text of the chunks"),
    ("documents.embedding", "vectors"),
    ("documents.w", "sign codes"),
    ("documents.metadata_", "metadata of the chunks"),
    ("documents.", "ids, places, headings, tags"),
    ("source_documents.text", "text of the documents"),
    ("source_documents.", "other columns of the documents"),
    ("postings.", "postings"),
    ("docs.", "lengths"),
    ("words.", "words"),
    ("dict.", "terms"),
    ("", "other tables"),
]
REST, FREE = "key indexes, catalog, room left in blocks", "free blocks"


def groups_of(path: Path) -> dict[str, int]:
    """Return the bytes of each group of columns."""
    with duckdb.connect(str(path), read_only=True) as con:
        block_size, free = con.execute("SELECT block_size, free_blocks FROM pragma_database_size()").fetchall()[0]
        segments = defaultdict(list)
        whole: dict[str, int] = defaultdict(int)
        tables = con.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
        for schema, table in tables:
            rows = con.execute(
                "SELECT column_name, block_id, block_offset, additional_block_ids FROM pragma_storage_info($1) "
                "WHERE persistent AND block_id >= 0",
                [f"{schema}.{table}"],
            ).fetchall()
            for column, block, offset, more in rows:
                name = f"{table}.{column}"
                group = next(group for beginning, group in GROUPS if name.startswith(beginning))
                segments[block].append((offset, group))
                whole[group] += len(more or []) * block_size
    for found in segments.values():
        found.sort()
        ends = [offset for offset, _ in found[1:]] + [block_size]
        for (offset, group), end in zip(found, ends, strict=True):
            whole[group] += end - offset
    whole[FREE] = free * block_size
    whole[REST] = path.stat().st_size - sum(whole.values())
    return whole


def column(path: Path) -> dict[str, str]:
    """Return the figures of one file."""
    with duckdb.connect(str(path), read_only=True) as con:
        chunks, text = con.execute("SELECT count(*), sum(strlen(text)) FROM documents").fetchall()[0]
    size = path.stat().st_size
    beyond = size - text - chunks * DIMENSIONS * 4
    groups = groups_of(path)
    lines = {
        "file, MB": f"{size / 1e6:,.1f}",
        "text of the chunks, bytes a chunk": f"{text / chunks:,.0f}",
        "**beyond text and vectors, bytes a chunk**": f"{beyond / chunks:,.0f}",
        "the same without free blocks": f"{(beyond - groups[FREE]) / chunks:,.0f}",
        "aim": f"{0.5 * text / chunks + 100:,.0f}",
        "beyond as a share of the text": f"{beyond / text:.2f}",
    }
    for group in [*(name for _, name in GROUPS), REST, FREE]:
        lines[f"stored: {group}"] = f"{groups.get(group, 0) / chunks:,.0f}"
    return lines


def change(path: Path, count: int) -> None:
    """Replace so many documents, each by an upsert of its own."""
    texts, vectors = next(batches(PER_DOCUMENT, PER_DOCUMENT))
    with Store(path, read_only=False) as store:
        for i in range(count):
            store.upsert(*rows_of(i * PER_DOCUMENT, texts), vectors)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--db", default="", help="stores that exist, in place of --sizes; they are not changed")
    parser.add_argument("--changes", type=int, default=50, help="documents to replace in the stores that are made")
    arguments = parser.parse_args()
    print(f"{environment()}, seed {SEED}\n\n{WHAT} Bytes a chunk unless said.\n")
    columns = {Path(path).name: column(Path(path)) for path in arguments.db.split(",") if path}
    for size in [] if columns else map(int, arguments.sizes.split(",")):
        for way in WAYS:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "kb.duckdb"
                store_all(way, path, size, None)
                columns[f"{size:,} {way}"] = column(path)
                if arguments.changes and way == "build":
                    change(path, arguments.changes)
                    columns[f"{size:,} {way}, {arguments.changes} documents replaced"] = column(path)
    names = list(next(iter(columns.values())))
    rows = [[name, *(figures[name] for figures in columns.values())] for name in names]
    print(markdown_table(["", *columns], rows))


if __name__ == "__main__":
    main()
