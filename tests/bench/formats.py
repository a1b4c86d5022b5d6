"""How long exchange files take to write and to load, and how large they are.

python -m tests.bench.formats [--documents 1000,10000] [--chunks 10000] [--dimensions 768] [--repeat 7]

Documents of so many chunks of 600 characters, unit vectors of random numbers, all in memory. "save" goes from parsed
contents to a file that is on the disk (with fsync), "load" from a file that the system has in its cache to parsed
contents, every hash checked. "plain" is the same data with faiss and the json module alone, as a program without a
package would do it: no checks, no hash, no fsync. Each figure is the least and the median wall time of the runs, which
take turns, and the least processor time of all threads of one.
"""

from __future__ import annotations

import argparse
import base64
import json
import statistics
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from sqlrag.engines.contents import Batch, Contents
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA
from sqlrag.formats.faiss_json import load_faiss_json, write_faiss_json
from sqlrag.formats.ragmd import load_ragmd, write_ragmd
from tests.bench.common import environment, markdown_table

if TYPE_CHECKING:
    from collections.abc import Callable

CHARACTERS = 600
SETTINGS = {"embedding_model": "nomic-embed-text", "created_at": "2026-01-01T00:00:00+00:00"}


def make_batch(documents: int, chunks: int, dimensions: int) -> Batch:
    """Return documents with chunks // documents chunks each."""
    rng = np.random.default_rng(0)
    words = np.array([f"word{number}" for number in range(5000)])
    sources: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    for number in range(documents):
        doc_id = f"folder/document-{number:05}.md"
        start, text = 0, ""
        for index in range(chunks // documents):
            part = " ".join(rng.choice(words, CHARACTERS // 9))[:CHARACTERS]
            rows.append(
                {
                    "node_id": f"{doc_id}#{index}", "text": part, "doc_id": doc_id, "collection": "default",
                    "metadata_": json.dumps({"file_name": doc_id[7:], "file_path": doc_id, "title": f"Title {number}"}),
                    "chunk_index": index, "i_start": start, "i_end": start + len(part), "page": None,
                    "heading_path": [f"Title {number}", f"Section {index}"], "tags": ["a", "b"],
                }
            )  # fmt: skip
            text += part + "\n\n"
            start = len(text)
        sources.append(
            {
                "doc_id": doc_id, "file_path": f"/home/me/{doc_id}", "file_name": doc_id[7:], "text": text,
                "metadata_": json.dumps({"title": f"Title {number}"}), "collection": "default", "checksum": "0" * 64,
                "mime": "text/markdown", "size_bytes": len(text), "modified_at": None, "tags": ["a", "b"],
                "body_start": 0, "page_starts": [], "chunk_policy": '{"chunk_size": 512}',
            }
        )  # fmt: skip
    vectors = rng.normal(size=(len(rows), dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return Batch(
        pa.Table.from_pylist(sources, schema=SOURCE_SCHEMA), pa.Table.from_pylist(rows, schema=CHUNK_SCHEMA), vectors
    )


def contents_of(batch: Batch) -> Contents:
    settings = {**SETTINGS, "embedding_dimensions": str(batch.vectors.shape[1])}
    return Contents(settings, len(batch.sources), len(batch.chunks), [batch])


def plain_ways(batch: Batch, folder: Path) -> dict[str, Callable[[], Any]]:
    """Return the same by faiss and json alone, as the design's section 6 does it."""
    try:
        import faiss
    except ImportError:
        return {}
    index = faiss.IndexFlatIP(batch.vectors.shape[1])
    index.add(batch.vectors)
    documents = {
        row["doc_id"]: {
            "id": row["doc_id"], "source": row["file_path"], "content": {}, "full_text": row["text"],
            "metadata": json.loads(row["metadata_"]), "chunks": {},
        }
        for row in batch.sources.to_pylist()
    }  # fmt: skip
    references = []
    for number, row in enumerate(batch.chunks.to_pylist()):
        key = f"chunk-{row['chunk_index']}"
        place = {"faiss_id": number, "i_start": row["i_start"], "i_end": row["i_end"]}
        documents[row["doc_id"]]["chunks"][key] = place
        references.append({"faiss_id": number, "document_id": row["doc_id"], "chunk_key": key})
    one, other, single = folder / "plain.faiss", folder / "plain.json", folder / "plain.ragmd"

    def save_pair() -> None:
        faiss.write_index(index, str(one))
        with other.open("w", encoding="utf-8") as file:
            json.dump({"chunk_refs": references, "documents": list(documents.values())}, file, indent=2)

    def load_pair() -> None:
        faiss.read_index(str(one))
        json.loads(other.read_text(encoding="utf-8"))

    def save_single() -> None:
        parts = (json.dumps(references, indent=2), json.dumps(documents, indent=2))
        vectors = base64.b64encode(faiss.serialize_index(index).tobytes()).decode("utf-8")
        single.write_text("\n\x00\n".join([*parts, vectors]), encoding="utf-8")

    def load_single() -> None:
        chunks, texts, vectors = single.read_text(encoding="utf-8").split("\n\x00\n")
        json.loads(chunks)
        json.loads(texts)
        faiss.deserialize_index(np.frombuffer(base64.b64decode(vectors), np.uint8))

    return {
        "save plain FAISS + JSON": save_pair, "load plain FAISS + JSON": load_pair,
        "save plain .ragmd": save_single, "load plain .ragmd": load_single,
    }  # fmt: skip


def measured(ways: dict[str, Callable[[], Any]], repeat: int) -> dict[str, tuple[float, float, float]]:
    """Return least and median wall time and least processor time of each, in ms; they take turns."""
    wall: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, list[float]] = defaultdict(list)
    for _ in range(repeat):
        for name, run in ways.items():
            began, worked = time.perf_counter(), time.process_time()
            run()
            wall[name].append(1000 * (time.perf_counter() - began))
            cpu[name].append(1000 * (time.process_time() - worked))
    return {name: (min(wall[name]), statistics.median(wall[name]), min(cpu[name])) for name in ways}


def ragmd_and_faiss_json(documents: int, chunks: int, dimensions: int, repeat: int) -> str:
    """Return the figures of .ragmd beside those of FAISS + JSON."""
    batch = make_batch(documents, chunks, dimensions)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        one, pair = folder / "a.ragmd", (folder / "vectors-a.faiss", folder / "metadata-a.json")
        ways = {
            "save .ragmd": lambda: write_ragmd(contents_of(batch), one, overwrite=True),
            "load .ragmd": lambda: load_ragmd(one),
            "save FAISS + JSON": lambda: write_faiss_json(contents_of(batch), pair[0], overwrite=True),
            "load FAISS + JSON": lambda: load_faiss_json(*pair),
            **plain_ways(batch, folder),
        }
        figures = measured(ways, repeat)
        sizes = one.stat().st_size, sum(path.stat().st_size for path in pair)
    title = f"{documents:,} documents, {len(batch.chunks):,} chunks, {dimensions} dimensions"
    rows = [[what, *(f"{value:,.0f}" for value in values)] for what, values in figures.items()]
    table = markdown_table([title, "ms, least", "ms, median", "processor, ms"], rows)
    ratio = f".ragmd {sizes[0]:,} bytes, FAISS + JSON {sizes[1]:,} bytes: {sizes[0] / sizes[1]:.3f} x"
    return f"{table}\n\n{ratio}\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", default="1000,10000")
    parser.add_argument("--chunks", type=int, default=10_000)
    parser.add_argument("--dimensions", type=int, default=768)
    parser.add_argument("--repeat", type=int, default=7)
    arguments = parser.parse_args()
    print(f"{environment()}\n")
    for documents in map(int, arguments.documents.split(",")):
        print(ragmd_and_faiss_json(documents, arguments.chunks, arguments.dimensions, arguments.repeat))


if __name__ == "__main__":
    main()
