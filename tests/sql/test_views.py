"""The views that explore a store, counted again with pandas from the same rows."""

from __future__ import annotations

import re
import shutil
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import sqlrag
from sqlrag import Chunk, Document
from sqlrag.embedders.hashing import HashingEmbedder
from sqlrag.links import markdown_links, resolve
from tests.support.handbook import HANDBOOK

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PAGES = {
    "index.md": "# Home\n\nTo [setup](guides/setup.md), [again](guides/setup.md#top), [nowhere](gone.md), "
    "[out](https://x.org/a).\n\n"
    "```\n[code](code.md)\n```\n\n`[span](span.md)` ![pic](pic.png) [self](#home) <mailto:a@b.org>\n",
    "guides/setup.md": "---\ntags: [a]\n---\nBack to [the *start*][s], [top](/index.md), [pdf](../a%20b.txt).\n\n"
    f"## One\n\n{'text ' * 120}\n\n"
    "### Deep\n\nmore text\n\n## Two\n\nlast\n\n[s]: ../index.md 'Title'\n",
    "a b.txt": "Plain [text](index.md) has no links.\n",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlrag.Store]:
    """Pages of the handbook, and in the collection web three pages that link to each other."""
    folder = tmp_path_factory.mktemp("analytics")
    for name, text in PAGES.items():
        (folder / "web" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "web" / name).write_text(text, encoding="utf-8")
    (folder / "docs").mkdir()
    for name in ("errors", "prefixes", "embedding-metadata"):
        shutil.copy(HANDBOOK / "reference" / f"{name}.md", folder / "docs")
    options: dict[str, Any] = {"embedder": HashingEmbedder("hashing-64"), "progress": "off", "chunk_overlap": 20}
    path = sqlrag.prepare_embeddings(folder / "docs", folder / "kb.duckdb", 100, **options).path
    sqlrag.update_embeddings(folder / "web", path, collection="web", embedder=options["embedder"], progress="off")
    with sqlrag.Store(path, read_only=False) as opened:
        yield opened


def table(store: sqlrag.Store, sql: str) -> pd.DataFrame:
    return store.cursor().execute(sql).df()


def test_lengths(store: sqlrag.Store) -> None:
    chunks = table(store, "SELECT collection, text FROM documents")
    lengths = chunks["text"].str.len()
    bins = (lengths // 100 * 100).value_counts().sort_index()
    found = table(store, "FROM chunk_lengths")
    assert dict(zip(found["from_characters"], found["chunks"], strict=True)) == bins.to_dict()

    found = table(store, "FROM chunk_length_summary").set_index("collection")
    wanted = lengths.groupby(chunks["collection"]).describe(percentiles=[0.25, 0.5, 0.75, 0.95])
    wanted = wanted[["count", "mean", "std", "min", "25%", "50%", "75%", "95%", "max"]]
    np.testing.assert_allclose(found.to_numpy(float), wanted.to_numpy(float), atol=0.05 + 1e-9)


def test_coverage(store: sqlrag.Store) -> None:
    sources = table(store, "SELECT doc_id, text, body_start FROM source_documents")
    chunks = table(store, "SELECT doc_id, i_start, i_end, length(text) AS characters FROM documents")
    found = table(store, "FROM document_coverage").set_index("doc_id")
    assert len(found) == len(sources)
    assert (chunks["i_end"] - chunks["i_start"]).sum() > found["covered"].sum()  # they overlap
    for row in sources.itertuples():
        own = chunks[chunks["doc_id"] == row.doc_id]
        inside = {i for start, end in zip(own["i_start"], own["i_end"], strict=True) for i in range(start, end)}
        written = {i for i in range(row.body_start, len(row.text)) if not row.text[i].isspace()}
        got = found.loc[row.doc_id]
        assert (got["chunks"], got["characters"], got["covered"]) == (len(own), len(written), len(written & inside))
        assert got["mean_characters"] == pytest.approx(own["characters"].mean(), abs=0.051)
    assert (found["coverage"] == 1).all()


def test_coverage_of_what_is_left_out(tmp_path: Path) -> None:
    """Of 'one two three' (11 letters) the chunks hold 'one two' and 'two'; of the others nothing is known."""
    texts = {"part.md": "one two three", "none.md": "four", "placeless.md": "five", "blank.md": " \n"}
    chunks = [Chunk("part.md", 0, "one two", i_end=7), Chunk("part.md", 1, "two", i_start=4, i_end=7)]
    with sqlrag.Store.create(tmp_path / "kb.duckdb", 2) as made:
        made.upsert([Document(*item) for item in texts.items()], [*chunks, Chunk("placeless.md", 0, "5")], [[0, 1]] * 3)
        found = made.cursor().execute("SELECT doc_id, characters, covered, coverage FROM document_coverage").fetchall()
    assert sorted(found) == [
        ("blank.md", 0, 0, None), ("none.md", 4, 0, 0), ("part.md", 11, 6, 0.5455), ("placeless.md", 4, None, None)
    ]  # fmt: skip


def test_vocabulary(store: sqlrag.Store) -> None:
    words = table(
        store,
        "SELECT rid, tf, 1 - tf AS heading_tf, unnest(fts_main_documents.tokenize(field) || "
        "fts_main_documents.run_characters(fts_main_documents.composed(field))) AS word FROM "
        "(SELECT rid, visible(text, shown) AS field, 1 AS tf FROM documents "
        "UNION ALL SELECT rid, array_to_string(heading_path, ' '), 0 FROM documents "
        "UNION ALL SELECT rid, array_to_string(tags, ' '), 0 FROM documents WHERE chunk_index = 0)",  # titles are H1s
    ).merge(table(store, "SELECT word, term FROM fts_main_documents.words"), on="word")
    by_term = words.groupby("term").agg(df=("rid", "nunique"), tf=("tf", "sum"), heading_tf=("heading_tf", "sum"))
    wanted = by_term.reset_index().sort_values(["df", "term"], ascending=[False, True])
    found = table(store, "FROM vocabulary")
    assert found["term"].tolist() == wanted["term"].tolist()
    assert found[["df", "total_tf", "total_heading_tf"]].to_numpy().tolist() == wanted.iloc[:, 1:].to_numpy().tolist()
    chunks = words["rid"].nunique()
    np.testing.assert_allclose(found["share"], wanted["df"] / chunks, atol=1e-6)
    row = found.set_index("term").loc["file"]
    assert (list(row["words"]), bool(row["is_stopword"])) == (["file", "files"], False)
    assert "the" in set(found[found["is_stopword"]]["term"])


def test_headings(store: sqlrag.Store) -> None:
    chunks = table(store, "SELECT doc_id, chunk_index, node_id, heading_path, length(text) AS n FROM documents")
    rows = [
        (c.doc_id, tuple(c.heading_path[:level]), c.chunk_index, c.n)
        for c in chunks.itertuples()
        for level in range(1, len(c.heading_path) + 1)
    ]
    groups = pd.DataFrame(rows, columns=["doc_id", "path", "index", "n"]).groupby(["doc_id", "path"])
    wanted = groups.agg(index=("index", "min"), chunks=("n", "size"), characters=("n", "sum"))
    wanted = {row[0]: tuple(row[1:]) for row in wanted.itertuples()}
    found = table(store, "FROM headings")
    assert len(found) == len(wanted)
    for row in found.itertuples():
        index, count, characters = wanted[row.doc_id, tuple(row.heading_path)]
        assert (row.chunk_index, row.chunks, row.characters) == (index, count, characters)
        assert (row.level, row.heading) == (len(row.heading_path), row.heading_path[-1])
        assert row.first_chunk == f"{row.doc_id}#{index}"
    outline = found[found["doc_id"] == "web:guides/setup.md"]["heading"].tolist()
    assert outline == ["setup", "One", "Deep", "Two"]


def test_freshness(store: sqlrag.Store) -> None:
    con = store.cursor()
    con.execute("BEGIN")
    con.execute("UPDATE source_documents SET modified_at = '2024-01-01' WHERE doc_id = 'errors.md'")
    con.execute("UPDATE source_documents SET modified_at = NULL WHERE doc_id = 'prefixes.md'")
    con.execute(
        "INSERT INTO ingest_failures VALUES ('errors.md', 'failed', 'It is damaged.', $1)", [datetime(2100, 1, 1)]
    )
    con.execute("INSERT INTO ingest_failures VALUES ('web:index.md', 'failed', 'Old.', $1)", [datetime(2000, 1, 1)])
    sources = con.execute("SELECT doc_id, modified_at, created_at FROM source_documents").df().set_index("doc_id")
    found = con.execute("FROM document_freshness").df().set_index("doc_id")
    con.execute("ROLLBACK")
    wanted = (sources["modified_at"].max() - sources["modified_at"]).dt.total_seconds() / 86400
    np.testing.assert_allclose(found["age_days"], wanted[found.index], atol=0.05 + 1e-9)
    assert (found["ingested_at"] == sources.loc[found.index, "created_at"]).all()
    assert found.index[-1] == "prefixes.md"
    assert found[found["stale"]]["reason"].to_dict() == {"errors.md": "It is damaged."}


def test_ingest_summary(store: sqlrag.Store) -> None:
    log = table(store, "FROM ingest_log")
    found = table(store, "FROM ingest_summary").set_index(["collection", "kind"])
    assert found.index.tolist() == [("default", "build"), ("web", "update")]
    names = ["documents", "removed", "chunks", "embedded", "reused", "failed"]
    wanted = log.groupby(["collection", "kind"])[names].sum()
    pd.testing.assert_frame_equal(found[names], wanted, check_dtype=False)
    seconds = (log["finished_at"] - log["started_at"]).dt.total_seconds()
    np.testing.assert_allclose(found["total_seconds"], seconds.groupby(log["collection"]).sum(), atol=0.002)


class TestLinks:
    def test_links_of_pages(self, store: sqlrag.Store) -> None:
        rows = store.cursor().execute(
            "SELECT source, target, label, url, fragment, external, broken FROM links WHERE source LIKE 'web:%'"
        )
        assert rows.fetchall() == [
            ("web:guides/setup.md", "web:index.md", "the start", "../index.md", None, False, False),
            ("web:guides/setup.md", "web:index.md", "top", "/index.md", None, False, False),
            ("web:guides/setup.md", "web:a b.txt", "pdf", "../a%20b.txt", None, False, False),
            ("web:index.md", "web:guides/setup.md", "setup", "guides/setup.md", None, False, False),
            ("web:index.md", "web:guides/setup.md", "again", "guides/setup.md#top", "top", False, False),
            ("web:index.md", "web:gone.md", "nowhere", "gone.md", None, False, True),
            ("web:index.md", None, "out", "https://x.org/a", None, True, False),
            ("web:index.md", "web:index.md", "self", "#home", "home", False, False),
            ("web:index.md", None, "mailto:a@b.org", "mailto:a@b.org", None, True, False),
        ]

    def test_degrees(self, store: sqlrag.Store) -> None:
        links = table(store, "FROM links")
        known = set(table(store, "SELECT doc_id FROM source_documents")["doc_id"])
        edges = links[links["target"].isin(known) & (links["source"] != links["target"])]
        edges = edges[["source", "target"]].drop_duplicates()
        found = table(store, "FROM link_degrees").set_index("doc_id")
        assert set(found.index) == known
        for doc_id, row in found.iterrows():
            own = links[links["source"] == doc_id]
            degrees = ((edges["source"] == doc_id).sum(), (edges["target"] == doc_id).sum())
            assert (row["outdegree"], row["indegree"]) == degrees
            assert (row["links"], row["external"]) == (len(own), own["target"].isna().sum())
            assert row["broken"] == (own["target"].notna() & ~own["target"].isin(known)).sum()
        assert found.loc["web:index.md"].tolist() == [1, 1, 6, 2, 1]

    @pytest.mark.slow
    def test_they_follow_their_document(self, tmp_path: Path) -> None:
        """Through a change, a deletion, compacting, an import, a repair and another model."""
        folder, path, model = tmp_path / "docs", tmp_path / "kb.duckdb", HashingEmbedder("hashing-64")
        folder.mkdir()

        def write(**texts: str) -> None:
            for name, text in texts.items():
                (folder / f"{name}.md").write_text(text, encoding="utf-8")
            fill = sqlrag.update_embeddings if path.exists() else sqlrag.prepare_embeddings
            fill(folder, path, embedder=model, progress="off")

        def links(file: Path = path, *, check: bool = False) -> list[tuple[str, str, bool]]:
            with sqlrag.Store(file) as opened:
                assert not check or opened.check() == []
                return opened.cursor().execute("SELECT source, target, broken FROM links").fetchall()

        write(a="to [b](b.md)", b="to [c](c.md) and [a](a.md)")
        both = [("a.md", "b.md", False), ("b.md", "c.md", True), ("b.md", "a.md", False)]
        assert links() == both
        write(a="to [c](c.md) and [b](b.md)", c="no link")
        assert links() == [("a.md", "c.md", False), ("a.md", "b.md", False), ("b.md", "c.md", False), both[2]]
        sqlrag.delete_documents(path, doc_ids=["a.md"])
        assert links() == [("b.md", "c.md", False), ("b.md", "a.md", True)]
        kept = links()

        sqlrag.compact(path)
        assert links(check=True) == kept
        sqlrag.export_parquet(path, tmp_path / "parquet")
        sqlrag.import_parquet(tmp_path / "parquet", tmp_path / "back.duckdb")
        assert links(tmp_path / "back.duckdb") == kept
        with sqlrag.Store(path, read_only=False) as opened:
            opened.cursor().execute("UPDATE document_links SET i_start = 0 WHERE link_index = 1")
            assert [problem.check for problem in opened.check()] == ["wrong_links"]
        assert sqlrag.repair(path).done == ("The links were extracted again from the texts.",)
        assert links() == kept
        with sqlrag.Store(path, read_only=False) as opened:
            opened.cursor().execute(
                "DROP VIEW link_degrees; DROP VIEW links; DROP TABLE document_links; "
                "UPDATE embedding_metadata SET value = '3' WHERE key = 'schema_version'"
            )
        assert sqlrag.upgrade(path).steps == ("0004_exploration", "0005_visible_text", "0006_words_by_script")
        assert links() == kept
        sqlrag.reembed(path, embedder=HashingEmbedder("hashing-32"), progress="off")
        assert links(check=True) == kept

    @pytest.mark.parametrize(
        ("url", "target"),
        [
            ("b.md", "x/b.md"),
            ("./b.md", "x/b.md"),
            ("../b.md", "b.md"),
            ("../../b.md", "../b.md"),
            ("/y/../b.md", "b.md"),
            ("?q=1#f", "x/a.md"),
            ("", "x/a.md"),
            ("b%23c.md", "x/b#c.md"),
            ("//host/b.md", None),
            ("HTTP://host", None),
        ],
        ids=range(10),
    )
    def test_where_a_url_leads(self, url: str, target: str | None) -> None:
        assert resolve(url, "x/a.md")[0] == target
        within = target if target is None else f"web:{target}"
        assert resolve(url, "web:x/a.md", "web")[0] == within

    @settings(max_examples=150, deadline=None, database=None)
    @given(
        st.lists(
            st.sampled_from(
                ["[a](b)", "[r]", "<http://x>", "![p](q)", "`", "> ", "- ", "# ", "\t", "    ", "\n", "\r\n", "\n\n"]  # noqa: RUF005
                + ["[r]: u\n", "é😀", "\0", "*", "\\", "[[b]](c\n'd')", "|", "```\n", "<b>", "]", "("]
            ),
            max_size=25,
        ).map("".join)
    )
    @example("> - [a](b)\n>\t[c\n> d](e) #\n")
    def test_spans_cut_links_out(self, text: str) -> None:
        links = markdown_links("---\n" + text, 4)
        for link in links:
            assert re.fullmatch(r"\[.*[\])]|<.*>", ("---\n" + text)[link.i_start : link.i_end], re.DOTALL), link
        assert all(one.i_end <= other.i_start for one, other in pairwise(links))


class TestNearDuplicates:
    def test_against_all_pairs(self, tmp_path: Path) -> None:
        """Groups of vectors around 40 centres; next to no pair is missed, and none from a cosine of 0.96 on."""
        noise = np.random.default_rng(1)
        centres = noise.normal(size=(40, 384))
        vectors = np.repeat(centres, 5, axis=0) + noise.normal(size=(200, 384)) * np.linspace(0, 0.3, 200)[:, None]
        vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        texts = [f"chunk {i % 180}" for i in range(200)]  # the last 20 are copies of the first in text only
        chunks = [Chunk(f"{i % 7}.md", i // 7, text) for i, text in enumerate(texts)]
        with sqlrag.Store.create(tmp_path / "kb.duckdb", 384) as made:
            made.upsert([Document(f"{i}.md", "") for i in range(7)], chunks, vectors)
            rows = made.cursor().execute("FROM near_duplicates").fetchall()
        cosines = vectors @ vectors.T
        order = sorted(range(200), key=lambda i: (chunks[i].doc_id, chunks[i].chunk_index))
        firsts = {texts[i]: i for i in reversed(order)}
        wanted = {}
        for place, i in enumerate(order):
            for j in order[place + 1 :]:
                copy = texts[i] == texts[j]
                close = i == firsts[texts[i]] and j == firsts[texts[j]] and cosines[i, j] >= 0.95
                if close or (copy and i == firsts[texts[i]]):
                    wanted[chunks[i].node_id, chunks[j].node_id] = (cosines[i, j], copy)
        found = {row[:2]: row[4:] for row in rows}
        assert len(found) == len(rows) > 100
        missed = [pair for pair in wanted if pair not in found]
        assert set(found) <= set(wanted)
        assert all(wanted[pair][0] < 0.96 for pair in missed)
        assert len(missed) <= len(wanted) / 50
        for pair, (cosine, copy) in found.items():
            assert (cosine, copy) == (pytest.approx(wanted[pair][0], abs=2e-6), wanted[pair][1])
        assert [row[4] for row in rows] == sorted((row[4] for row in rows), reverse=True)
        assert sum(row[5] for row in rows) == 20

    @pytest.mark.parametrize("dimensions", [8, 130, 768])
    def test_other_dimensions(self, tmp_path: Path, dimensions: int) -> None:
        """A copy is found; the opposite vector and one that is not finite are not."""
        vector = np.random.default_rng(dimensions).normal(size=dimensions)
        chunks = [Chunk("a.md", i, f"chunk {i}") for i in range(4)]
        with sqlrag.Store.create(tmp_path / "kb.duckdb", dimensions) as made:
            made.upsert([Document("a.md", "")], chunks, [vector, vector * 2, -vector, vector])
            made.cursor().execute(
                f"UPDATE documents SET embedding = list_transform(range({dimensions}), lambda i: 'nan'::FLOAT)"
                f"::FLOAT[{dimensions}] WHERE chunk_index = 3"
            )
            rows = made.cursor().execute("FROM near_duplicates").fetchall()
        assert rows == [("a.md#0", "a.md#1", "a.md", "a.md", 1.0, False)]
