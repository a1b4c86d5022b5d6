"""What the tests of exchange files share: contents made by hand, compared, and files that are damaged at random."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from sqlrag.engines.contents import Batch, Contents, checked_batches
from sqlrag.engines.duckdb.documents import CHUNK_SCHEMA, SOURCE_SCHEMA

# Texts that are hard on formats: separators of every kind, NUL, other planes, right to left, quotes, fences.
HARD = [
    "a-b--c - d",
    "nul \0 and \0\0 more\0",
    "emoji 🦆🏳️‍🌈 and 漢字 and עברית",
    'quotes " and \\ and \u2028 and \x7f',
    "```json\n{}\n```\n---\n## Vectors\n",
    "keyword-(24,4096)\0vector-(4098,8192)",
    "  blanks around \r\n\t",
    "%2D %00 %25 à la carte",
]


def hard_contents(dimensions=8):
    """Return contents of a document for each hard text, which also is its name, and one document without chunks."""
    texts = sorted(HARD)
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(len(texts), dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    sources = [source(text, f"# {text} end") for text in texts]
    chunks = [
        chunk(text, 0, text, i_start=2, i_end=2 + len(text), heading_path=[text, "x"], tags=[text]) for text in texts
    ]
    return contents_of([*sources, source("zz empty", "")], chunks, vectors)


def source(doc_id, text, **columns):
    return {
        "doc_id": doc_id, "file_path": f"in/{doc_id}", "file_name": doc_id, "text": text, "metadata_": '{"n":1}',
        "collection": "default", "checksum": "aa", "mime": "text/plain", "size_bytes": 3, "modified_at": None,
        "tags": ["t"], "body_start": 0, "page_starts": [0, 5], "chunk_policy": None, **columns,
    }  # fmt: skip


def chunk(doc_id, index, text, **columns):
    return {
        "node_id": f"{doc_id}#{index}", "text": text, "metadata_": '{"b":"2024-01-02","a":1.5}', "doc_id": doc_id,
        "collection": "default", "chunk_index": index, "i_start": None, "i_end": None, "page": 2,
        "heading_path": [], "tags": [], **columns,
    }  # fmt: skip


def contents_of(sources, chunks, vectors, **settings):
    vectors = np.asarray(vectors, np.float32)
    batch = Batch(pa.Table.from_pylist(sources, SOURCE_SCHEMA), pa.Table.from_pylist(chunks, CHUNK_SCHEMA), vectors)
    settings = {"embedding_dimensions": str(vectors.shape[1]), "query_prefix": "q: é", **settings}
    return Contents(settings, len(sources), len(chunks), [batch], "2024-05-06T07:08:09Z")


def dumped(contents):
    """Return everything that contents hold, to be compared with ``==``."""
    sources, chunks, vectors = [], [], b""
    for batch in checked_batches(contents):
        sources += batch.sources.to_pylist()
        chunks += batch.chunks.to_pylist()
        vectors += batch.vectors.tobytes()
    return dict(contents.settings), contents.updated_at, sources, chunks, vectors


def stored(con, name=""):
    """Return what a store holds, without the times of its making."""
    return [
        con.execute(f"SELECT * EXCLUDE rid FROM {name}documents ORDER BY node_id").fetchall(),
        con.execute(f"SELECT * EXCLUDE created_at FROM {name}source_documents ORDER BY doc_id").fetchall(),
        con.execute(f"SELECT key, value FROM {name}embedding_metadata ORDER BY key").fetchall(),
    ]


@st.composite
def damages(draw):
    """Return a function that damages bytes: bits, runs, cuts, parts that are moved, doubled or filled."""
    kind = draw(st.sampled_from(["flip", "set", "cut", "drop", "insert", "move", "fill"]))
    at, other, length = draw(st.floats(0, 1)), draw(st.floats(0, 1)), draw(st.integers(1, 40))
    value = draw(st.binary(min_size=1, max_size=20))

    def damage(data):
        a, b = (int(x * (len(data) - 1)) for x in (at, other))
        changed = bytearray(data)
        if kind == "flip":
            changed[a] ^= 1 << value[0] % 8
        elif kind == "set":
            changed[a : a + len(value)] = value
        elif kind == "cut":
            del changed[a:]
        elif kind == "drop":
            del changed[a : a + length]
        elif kind == "insert":
            changed[a:a] = value
        elif kind == "move":
            changed[a : a + length], changed[b : b + length] = changed[b : b + length], changed[a : a + length]
        else:
            changed[a : a + length] = bytes([value[0]]) * length
        return bytes(changed)

    return damage
