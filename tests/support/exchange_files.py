"""What the tests of exchange formats share: two stores compared, files by other programs, mutations."""

from __future__ import annotations

import base64
import json
import random

import duckdb
import faiss
import numpy as np
import yaml

faiss.omp_set_num_threads(1)  # its threads wait for each other on a busy machine

COMPARED = (
    "SELECT * EXCLUDE rid FROM {}documents ORDER BY node_id",
    "SELECT * EXCLUDE created_at FROM {}source_documents ORDER BY doc_id",
    "SELECT key, value FROM {}embedding_metadata ORDER BY key",
)


def assert_equal_stores(first, second):
    """Everything that a store holds is equal, the vectors bit for bit."""
    with duckdb.connect(str(second), read_only=True) as con:
        con.execute(f"ATTACH '{first}' AS other (READ_ONLY)")
        for sql in COMPARED:
            assert con.execute(sql.format("")).fetchall() == con.execute(sql.format("other.")).fetchall()


def rows_of(contents):
    """Return what was read, as plain values."""
    (batch,) = contents.batches
    return (
        dict(contents.settings),
        batch.sources.to_pylist(),
        batch.chunks.to_pylist(),
        batch.vectors.tobytes(),
        contents.documents,
        contents.chunks,
    )


def design_file(model_name, index, documents, chunk_refs, **header):
    """Return a .ragmd file as the design's own algorithm writes it (its sections 4 and 6).

    Corrected only where it cannot run: ``BufferedIOWriter`` writes nothing before it is destroyed, so
    ``faiss.serialize_index`` takes its place, and ``created_at``, which its front matter names, is added.
    """
    frontmatter = {
        "format_version": "1.0",
        "model_name": model_name,
        "embedding_dim": index.d,
        "vector_count": len(chunk_refs),
        "document_count": len(documents),
        "index_type": index.__class__.__name__,
        "created_at": "2026-02-14T10:00:00Z",
        "updated_at": "2026-02-14T10:30:00Z",
        **header,
    }
    chunks_json = json.dumps(
        [
            {"faiss_id": i, "document_id": document_id, "chunk_key": chunk_key}
            for i, (document_id, chunk_key) in enumerate(chunk_refs)
        ],
        indent=2,
    )
    docs_json = json.dumps(documents, indent=2)
    index_b64 = base64.b64encode(faiss.serialize_index(index).tobytes()).decode()
    table = "| Document ID | Source | Chunks | Title |\n|---|---|---|---|\n" + "".join(
        f"| {name} | {document.get('source')} | {len(document['chunks'])} | |\n" for name, document in documents.items()
    )
    return f"""---
{yaml.dump(frontmatter, default_flow_style=False)}---

## Documents

{table}

## Chunks

```json
{chunks_json}
```

## Document Metadata

```json
{docs_json}
```

## Vectors

```base64
{index_b64}
```
"""


def flat(vectors, metric=faiss.METRIC_INNER_PRODUCT):
    vectors = np.ascontiguousarray(vectors, np.float32)
    index = (faiss.IndexFlatIP if metric == faiss.METRIC_INNER_PRODUCT else faiss.IndexFlatL2)(vectors.shape[1])
    index.add(vectors)
    return index


def unit(rows, dimensions, seed=0):
    vectors = np.random.default_rng(seed).normal(size=(rows, dimensions)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def mutate(data, seed):
    """Return bytes with one to three faults: bytes changed, put in, taken out, lines moved, the end cut off."""
    rng = random.Random(seed)
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if not made:
            break
        place = rng.randrange(len(made))
        length = rng.choice((1, 1, 2, 8, 60, 400))
        kind = rng.randrange(8)
        if kind <= 1:
            made[place] = rng.randrange(256)
        elif kind == 2:
            made[place] ^= 1 << rng.randrange(8)
        elif kind == 3:
            del made[place : place + length]
        elif kind == 4:
            made[place:place] = bytes(rng.choice(b'"{}[],:\n\r-#`0123456789abcAZ =\\\x00\xff') for _ in range(length))
        elif kind == 5:
            lines = made.split(b"\n")
            one, other = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[one], lines[other] = lines[other], lines[one]
            made = bytearray(b"\n").join(lines)
        elif kind == 6:
            lines = made.split(b"\n")
            first = rng.randrange(len(lines))
            if rng.random() < 0.5:
                del lines[first : first + rng.randrange(1, 12)]
            else:
                lines[first:first] = lines[first : first + rng.randrange(1, 4)]
            made = bytearray(b"\n").join(lines)
        else:
            del made[place:]
    return bytes(made)
