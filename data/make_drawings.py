"""Makes the drawings of the handbook: the pipeline, the tables, a search taken apart, and how figures grow.

python data/make_drawings.py

Needs a checkout with the extra ``offline``. Texts and numbers are of the corpus in ``data/conformance``, built with
MiniLM; what grows was measured by ``tests.bench.scaling``. ``tests/package/test_drawings.py`` makes them again.
"""

from __future__ import annotations

import json
import math
import tempfile
from html import escape
from pathlib import Path

import sqlrag

DATA = Path(__file__).resolve().parent
HANDBOOK = DATA / "handbook"
FIGURES = DATA.parent / "tests" / "bench" / "measured.json"
MODEL = "sentence-transformers/all-MiniLM-L6-v2"
DOCUMENT = "boats.md"
QUESTION = "Why does a boat float on water?"

INK, MUTED, PAPER, CARD, LINE = "#1c2025", "#59616b", "#ffffff", "#f3f5f8", "#868e98"
VECTOR, LEXICAL, TOGETHER = "#3a72c4", "#b0690a", "#1b7f3b"

# What grows, with its unit.
GROWING = {
    "build_s": ("storing and indexing", "s"),
    "hybrid_ms": ("a hybrid search", "ms"),
    "resident_mb": ("memory while searching", "MB"),
    "file_mb": ("the file", "MB"),
}

# Columns that hold the same in every table that has them.
KEYS = {"doc_id": VECTOR, "node_id": LEXICAL, "rid": TOGETHER, "termid": "#a3217a", "collection": "#7350cc"}

# The tables, in columns from left to right.
COLUMNS = (
    ("main.source_documents", "main.document_links", "main.collections"),
    ("main.documents", "main.corpus_map", "main.query_embeddings"),
    (
        *(f"fts_main_documents.{name}" for name in ("docs", "postings", "dict", "words", "stopwords")),
        "main.embedding_metadata",
    ),
    ("main.ingest_log", "main.ingest_failures"),
)


def main() -> None:
    """Write the drawings into the handbook."""
    with tempfile.TemporaryDirectory() as folder:
        for name, drawing in drawings(build(Path(folder))).items():
            (HANDBOOK / name).write_text(drawing, "utf-8")


def build(folder: Path) -> Path:
    """Return the search file that is drawn."""
    made = sqlrag.prepare_embeddings(
        DATA / "conformance" / "corpus", folder / "kb.duckdb", 200, embed_model_name=MODEL, progress="off"
    )
    return made.path


def drawings(path: Path) -> dict[str, str]:
    """Return each drawing as SVG, by its place in the handbook."""
    with sqlrag.Store(path) as store:
        return {
            "pipeline.svg": pipeline(store),
            "reference/tables.svg": tables(store),
            "guides/a-search-taken-apart.svg": search(store),
            "guides/growth.svg": growth(json.loads(FIGURES.read_text("utf-8"))["points"]),
        }


def text(
    x: float, y: float, words: str, *, size: int = 12, colour: str = INK, bold: bool = False, at: str = "start"
) -> str:
    """Return a line of text; ``at`` says which part of it is at ``x``."""
    style = f'font-size="{size}" fill="{colour}" text-anchor="{at}"' + (' font-weight="600"' if bold else "")
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(words)}</text>'


def box(x: float, y: float, width: float, title: str, *lines: str, colour: str = LINE, height: float = 0) -> str:
    """Return a box with a title and lines of text."""
    height = height or 30 + 16 * len(lines)
    parts = [
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="6" fill="{CARD}" stroke="{colour}"/>'
    ]
    parts.append(text(x + 10, y + 19, title, size=13, bold=True))
    parts += [text(x + 10, y + 37 + 16 * at, line, colour=MUTED) for at, line in enumerate(lines)]
    return "".join(parts)


def arrow(*points: tuple[float, float]) -> str:
    """Return a line with a head at its end."""
    path = " ".join(f"{x:g},{y:g}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{MUTED}" stroke-width="1.5" marker-end="url(#head)"/>'


def svg(width: int, height: int, title: str, *parts: str) -> str:
    """Return a drawing on paper of its own, so that it can be read on dark pages as well."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="Helvetica, Arial, \'Liberation Sans\', sans-serif" role="img"><title>{escape(title)}</title>'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{MUTED}"/></marker></defs>'
        f'<rect width="{width}" height="{height}" rx="10" fill="{PAPER}"/>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


def pipeline(store: sqlrag.Store) -> str:
    """Draw what becomes of a document and of a question."""
    source = store.sources([DOCUMENT])[DOCUMENT]
    facts = store.get_embedding_metadata()
    sizes = "SELECT len FROM fts_main_documents.docs JOIN documents USING (rid) WHERE doc_id = $1 ORDER BY rid"
    chunks = [size for (size,) in store.cursor().execute(sizes, [DOCUMENT]).fetchall()]
    results = store.hybrid_query(QUESTION, top_k=3)
    dimensions = facts["embedding"]["dimensions"]
    rows = {"file": 30, "store": 186, "question": 296}
    return svg(
        860,
        420,
        "A document is read, cut, embedded and indexed into one file, in which two legs search for a question",
        text(20, 20, "sqlrag build", size=12, colour=MUTED, bold=True),
        box(
            20,
            rows["file"],
            150,
            "Document",
            DOCUMENT,
            f"{(DATA / 'conformance/corpus' / DOCUMENT).stat().st_size:,} bytes",
            "its format is read",
        ),
        arrow((170, 65), (208, 65)),
        box(
            210,
            rows["file"],
            170,
            "Text",
            f"{len(source['text']):,} characters",
            "headings, links, pages",
            "tags, metadata",
        ),
        arrow((380, 65), (418, 65)),
        box(
            420,
            rows["file"],
            170,
            "Chunks",
            f"{len(chunks)} slices of the text",
            "with their headings",
            f"{min(chunks)} to {max(chunks)} words each",
        ),
        arrow((590, 55), (628, 42)),
        arrow((590, 80), (628, 105)),
        box(630, 20, 210, "Vectors", f"{dimensions} numbers for each chunk", colour=VECTOR),
        box(630, 84, 210, "Word index", "stems, with counts for BM25", colour=LEXICAL),
        arrow((735, 130), (735, rows["store"] - 2)),
        box(
            20,
            rows["store"],
            820,
            "kb.duckdb – one file",
            "documents · chunks with their offsets · vectors · word index · settings, and SQL for all of it",
            colour=INK,
        ),
        text(20, rows["question"] - 16, "sqlrag search", size=12, colour=MUTED, bold=True),
        box(20, rows["question"], 190, "Question", "“Why does a boat", "float on water?”"),
        arrow((210, 318), (248, 312)),
        arrow((210, 340), (248, 374)),
        box(250, rows["question"] - 10, 210, "Vector leg", "its vector: cosine of each chunk", colour=VECTOR),
        box(250, rows["question"] + 62, 210, "Lexical leg", "its words: BM25 of each chunk", colour=LEXICAL),
        f'<rect x="240" y="278" width="230" height="134" rx="8" fill="none" stroke="{LINE}" stroke-dasharray="4 3"/>',
        arrow((355, rows["store"] + 46), (355, 276)),
        arrow((460, 312), (498, 322)),
        arrow((460, 378), (498, 352)),
        box(500, rows["question"], 120, "Fusion", "one order", "of both", colour=TOGETHER),
        arrow((620, 330), (648, 330)),
        box(650, rows["question"], 190, "Results", *(row["node_id"] for row in results), colour=TOGETHER),
    )


def tables(store: sqlrag.Store) -> str:
    """Draw the tables of a file with their columns and types."""
    listed: dict[str, list[tuple[str, str]]] = {}
    for table, column, kind in (
        store.cursor()
        .execute(
            "SELECT schema_name || '.' || table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal "
            "AND table_name IN (SELECT table_name FROM duckdb_tables()) ORDER BY table_oid, column_index"
        )
        .fetchall()
    ):
        listed.setdefault(table, []).append((column, kind.replace("[384]", "[n]")))
    if new := set(listed).symmetric_difference(table for names in COLUMNS for table in names):
        raise SystemExit(f"COLUMNS must have every table of a file once, and not: {', '.join(sorted(new))}")
    parts, bottom = [], 0.0
    for place, names in enumerate(COLUMNS):
        x, y = 20 + 235 * place, 62.0
        for table in names:
            columns = [(name, kind) for name, kind in listed[table] if name not in ("w1", "w2")]
            height = 34 + 15 * len(columns)
            schema, name = table.split(".")
            parts.append(box(x, y, 215, name, height=height))
            if schema != "main":
                parts.append(text(x + 205, y + 19, schema, size=10, colour=MUTED, at="end"))
            for at, (name, kind) in enumerate(columns):
                line = y + 37 + 15 * at
                if name in KEYS:
                    parts.append(f'<circle cx="{x + 13:g}" cy="{line - 4:g}" r="4" fill="{KEYS[name]}"/>')
                parts.append(text(x + 22, line, "w0, w1 …" if name == "w0" else name, size=11))
                parts.append(text(x + 205, line, kind, size=10, colour=MUTED, at="end"))
            y += height + 14
        bottom = max(bottom, y)
    keys = [
        f'<circle cx="{24 + 150 * at}" cy="36" r="4" fill="{colour}"/>' + text(34 + 150 * at, 40, name)
        for at, (name, colour) in enumerate(KEYS.items())
    ]
    title = "The tables of a search file with their columns and types"
    return svg(960, int(bottom) + 6, title, text(20, 20, "The same in every table:", colour=MUTED), *keys, *parts)


def search(store: sqlrag.Store) -> str:
    """Draw the ranks of the results of a question in both legs, and what the words of the best one add."""
    rows = store.hybrid_query(QUESTION, top_k=6)
    best = store.explain(QUESTION, rows[0]["node_id"])
    left, middle, right, top, step = 190, 430, 670, 84, 34
    parts = [text(20, 26, f"“{QUESTION}”", size=15, bold=True)]
    for x, words, colour in (
        (left, "Vector leg: rank, cosine", VECTOR),
        (middle, "Results", TOGETHER),
        (right, "Lexical leg: rank, BM25", LEXICAL),
    ):
        parts.append(text(x, 62, words, size=13, colour=colour, bold=True, at="middle"))
    last = len(rows) + 1
    for place, row in enumerate(rows):
        y = top + step * place
        parts.append(box(middle - 100, y, 200, row["node_id"], height=26, colour=TOGETHER))
        for leg, x, end, colour in (("vector", left, -100, VECTOR), ("lexical", right, 100, LEXICAL)):
            rank, score = row[f"{leg}_rank"], row[f"{leg}_score"]
            at = top + 13 + step * (min(rank or last, last) - 1)
            beyond = rank is None or rank >= last
            line = f'x1="{x + (70 if end < 0 else -70)}" y1="{at}" x2="{middle + end}" y2="{y + 13}"'
            dash = ' stroke-dasharray="4 3"' if beyond else ""
            parts.append(f'<line {line} stroke="{colour}" stroke-width="1.5"{dash}/>')
            if not beyond:
                parts.append(text(x, at + 4, f"{rank}.  {score:.3f}", at="middle"))
    below = top + step * (last - 1)
    for leg, x in (("vector", left), ("lexical", right)):
        ranks = [row[f"{leg}_rank"] for row in rows]
        others = [f"{rank}." for rank in ranks if rank and rank >= last] + ["not found"] * (None in ranks)
        parts.append(text(x, below + 17, ", ".join(others), colour=MUTED, at="middle"))
    y = below + 60
    legs = f"{best.vector.contribution:.3f} (vectors) + {best.lexical.contribution:.3f} (words)"
    parts.append(text(20, y, f"{best.node_id}: {best.score:.3f} = {legs}", size=13, bold=True))
    scale = 500 / best.lexical.bm25
    x = 190.0
    parts.append(text(20, y + 31, "its BM25, by words", colour=MUTED))
    for term, shade in zip(best.lexical.terms, (1, 0.75, 0.55, 0.4), strict=False):
        width = term.contribution * scale
        parts.append(
            f'<rect x="{x:g}" y="{y + 16:g}" width="{width:g}" height="22" fill="{LEXICAL}" fill-opacity="{shade}"/>'
        )
        parts.append(text(x + width / 2, y + 56, f"{term.term} {term.contribution:.2f}", at="middle"))
        x = round(x + width, 3)
    ignored = ", ".join(best.lexical.ignored)
    parts.append(text(x + 14, y + 31, f"= {best.lexical.bm25:.2f}", bold=True))
    parts.append(text(20, y + 84, f"Stop words, left out: {ignored}", colour=MUTED))
    return svg(
        860,
        int(y) + 100,
        "The ranks of six results in both legs, and how the words of the best one add up to its BM25",
        *parts,
    )


def growth(points: list[dict[str, float]]) -> str:
    """Draw each figure that was measured at several sizes, by powers of ten, with the power of n that fits."""
    known = {name: [(point["chunks"], point[name]) for point in points if name in point] for name in GROWING}
    known = {name: found for name, found in known.items() if len(found) > 1}
    low, high = (edge(math.log10(point["chunks"]) for point in points) for edge in (min, max))
    width, top, height = 860 / len(known), 70, 170
    parts = []
    for panel, (name, found) in enumerate(known.items()):
        (title, unit), left, wide = GROWING[name], panel * width + 40, width - 125
        values = [math.log10(value) for _, value in found]
        floor, ceiling = math.floor(min(values)), math.ceil(max(values))
        places = [
            (
                round(left + wide * (math.log10(size) - low) / (high - low), 1),
                round(top + height * (ceiling - value) / (ceiling - floor), 1),
            )
            for (size, _), value in zip(found, values, strict=True)
        ]
        parts += [text(left, 28, title, size=13, bold=True), text(left, 46, f"grows as {_power(found)}", colour=MUTED)]
        parts.append(
            f'<path d="M{left:g} {top}V{top + height}H{left + wide:g}" fill="none" stroke="{LINE}" stroke-width="1"/>'
        )
        line = " ".join(f"{x:g},{y:g}" for x, y in places)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{VECTOR}" stroke-width="2"/>')
        for (x, y), (size, value) in zip(places, found, strict=True):
            parts.append(f'<circle cx="{x:g}" cy="{y:g}" r="3.5" fill="{VECTOR}"/>')
            parts.append(text(x + 6, y + 16, f"{value:,g} {unit}"))
            if math.log10(size).is_integer():
                parts.append(text(x, top + height + 18, f"{size:,.0f}", colour=MUTED, at="middle"))
    parts.append(text(430, top + height + 44, "chunks of 384 dimensions", colour=MUTED, at="middle"))
    return svg(860, top + height + 60, "How time, memory and the size of a file grow with the number of chunks", *parts)


def _power(found: list[tuple[float, float]]) -> str:
    """Return the power of n that fits best, by least squares of the logarithms."""
    xs, ys = ([math.log(pair[i]) for pair in found] for i in (0, 1))
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)
    return f"n to the power of {slope:.2f}"


if __name__ == "__main__":
    main()
