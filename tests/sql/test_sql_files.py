"""The files of ``sql``: comments on everything, examples that run, checks that are tested."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import duckdb
import pytest

import sqlrag
from sqlrag.engines.duckdb.check import check_names
from sqlrag.engines.duckdb.schema import MACROS, VIEWS, code_words, create_objects, sql_folder
from tests.support.helpers import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EXAMPLES = sorted((ROOT / "sql" / "examples").glob("*.sql"))

COMMENTS = """
    SELECT schema_name, table_name AS name, comment FROM duckdb_tables() WHERE NOT internal
    UNION ALL SELECT schema_name, view_name, comment FROM duckdb_views() WHERE NOT internal
    UNION ALL SELECT schema_name, table_name || '.' || column_name, comment FROM duckdb_columns() WHERE NOT internal
    UNION ALL SELECT schema_name, function_name, comment FROM duckdb_functions() WHERE NOT internal
    ORDER BY ALL
"""


@pytest.mark.parametrize("dimensions", [384, 8, 768])
def test_everything_has_a_comment(dimensions: int) -> None:
    with duckdb.connect() as con:
        create_objects(con, dimensions)
        rows = con.execute(COMMENTS).fetchall()
    names = {name for _, name, _ in rows}
    assert names >= {"documents", "chunks.heading", "match_bm25", "hybrid_query", "stats.avg_len"}
    assert f"documents.w{code_words(dimensions) - 1}" in names
    assert [f"{schema}.{name}" for schema, name, comment in rows if not comment or not comment.endswith(".")] == []


def test_every_file_is_loaded() -> None:
    folder = sql_folder()
    assert sorted(file.stem for file in (folder / "macros").glob("*.sql")) == sorted(MACROS)
    assert sorted(file.stem for file in (folder / "views").glob("*.sql")) == sorted(VIEWS)


def test_every_check_is_tested_on_a_sound_store_and_on_a_fault() -> None:
    text = (ROOT / "tests" / "sql" / "checks.test").read_text(encoding="utf-8")
    assert [name for name in check_names() if text.count(f"FROM check_{name}\n") < 2] == []


@pytest.fixture(scope="module")
def handbook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlrag.Store]:
    path = tmp_path_factory.mktemp("handbook") / "handbook.duckdb"
    prepared = sqlrag.prepare_embeddings(
        ROOT / "data" / "handbook", path, embed_model_name="hashing-64", embedding_provider="hashing", progress="off"
    )
    with sqlrag.Store(prepared.path, read_only=False) as store:
        store.cursor().execute(
            "INSERT INTO ingest_failures VALUES ('bad.pdf', 'failed', 'It is damaged.', '2024-01-01')"
        )
        # What the handbook has none of: a copy of a passage, and a link that leads nowhere.
        sql = "SELECT text, embedding FROM documents WHERE node_id = 'about.txt#0'"
        ((text, vector),) = store.cursor().execute(sql).fetchall()
        copy = sqlrag.Document("copy.md", f"{text}\n\n[gone](gone.md)", mime="text/markdown")
        store.upsert([copy], [sqlrag.Chunk("copy.md", 0, text)], [vector])
        yield store


@pytest.mark.every
@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_example_runs(handbook: sqlrag.Store, file: Path) -> None:
    sql = file.read_text(encoding="utf-8")
    con = handbook.cursor()
    first, *_, last = sql.strip().splitlines()
    assert first.startswith("-- ")
    assert first.endswith((".", "?"))
    assert last.startswith("LIMIT ")
    assert len(con.extract_statements(sql)) == 1
    rows = con.execute(sql).fetchall()
    assert rows
    assert con.execute(sql).fetchall() == rows


def rows_of(store: sqlrag.Store, name: str) -> list[tuple[object, ...]]:
    return store.cursor().execute((ROOT / "sql" / "examples" / f"{name}.sql").read_text(encoding="utf-8")).fetchall()


def test_examples_tell_the_truth(handbook: sqlrag.Store) -> None:
    """What the examples count in SQL, counted again from the rows."""
    chunks = handbook.cursor().execute("SELECT node_id, doc_id, text, tags, page FROM documents").fetchall()
    longest = sorted(((-len(text), node_id) for node_id, _, text, _, _ in chunks))[:10]
    assert [(-row[2], row[0]) for row in rows_of(handbook, "longest_chunks")] == longest

    of_source = {doc_id: [len(c[2]) for c in chunks if c[1] == doc_id] for doc_id in {c[1] for c in chunks}}
    for doc_id, count, _, top in rows_of(handbook, "chunks_per_source"):
        assert (count, top) == (len(of_source[str(doc_id)]), max(of_source[str(doc_id)]))

    for tag, documents, count in rows_of(handbook, "tags_overview"):
        tagged = [c for c in chunks if tag in c[3]]
        assert (documents, count) == (len({c[1] for c in tagged}), len(tagged))

    for doc_id, page, count, characters in rows_of(handbook, "pages_of_pdfs"):
        on_page = [len(c[2]) for c in chunks if c[1] == doc_id and c[4] == page]
        assert (count, characters) == (len(on_page), sum(on_page))

    for word, node_id in rows_of(handbook, "rarest_terms"):
        assert str(word).replace("_", "") in next(c[2] for c in chunks if c[0] == node_id).lower().replace("_", "")

    term, words, count, _ = rows_of(handbook, "most_common_terms")[0]
    assert (term, words) == ("file", ["file", "files"])
    indexed = handbook.cursor().execute("SELECT count(*) FROM lexical_query('files', k := 10000)").fetchall()[0][0]
    assert count == indexed

    assert rows_of(handbook, "near_duplicates") == [("about.txt#0", "copy.md#0", 1, True)]
    assert rows_of(handbook, "broken_links") == [("copy.md", "gone", "gone.md", "gone.md")]
    assert rows_of(handbook, "documents_about")[0][0] == "guides/filters.md"
    assert rows_of(handbook, "similar_to_chunk")[0][0] != "about.txt#0"
    formats = [doc_id for doc_id in of_source if str(doc_id).startswith("formats/")]
    counted = sqlrag.distinctive_terms(handbook, {"metadata": {"$doc_id": {"$in": formats}}}, top_k=1000)
    stems = dict(handbook.cursor().execute("SELECT word, term FROM fts_main_documents.words").fetchall())
    z_of = {stems[row["term"]]: row["z"] for row in counted}
    for term, _, _, z in rows_of(handbook, "distinctive_terms"):
        assert z == pytest.approx(z_of[term], abs=1e-5)
    first = handbook.vectors([handbook.cursor().execute("SELECT node_id FROM chunks LIMIT 1").fetchall()[0][0]])[0]
    of_python = sqlrag.trend(first, handbook, threshold=0.5)
    assert rows_of(handbook, "trend") == [
        (*row[:3], round(row[3], 6)) for row in map(tuple, map(dict.values, of_python))
    ]
    assert rows_of(handbook, "failures")[0][:3] == ("bad.pdf", "failed", "It is damaged.")


def test_matrix_calls_every_macro() -> None:
    calls = (ROOT / "tests" / "matrix" / "make_store.py").read_text(encoding="utf-8")
    assert [name for name in MACROS if f"{name}(" not in calls] == []


def run_matrix(script: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "tests" / "matrix" / script), str(folder)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.rest
def test_matrix_finds_a_difference(tmp_path: Path) -> None:
    """``tests/matrix/run.sh`` runs both scripts under three DuckDBs; here they run under this one."""
    made = run_matrix("make_store.py", tmp_path)
    assert made.returncode == 0, made.stderr
    opened = run_matrix("open_store.py", tmp_path)
    assert opened.returncode == 0, opened.stderr
    assert opened.stdout.strip().endswith("0 differences")
    expected = tmp_path / "expected.json"
    expected.write_text(expected.read_text(encoding="utf-8").replace("0.032", "0.033"), encoding="utf-8")
    opened = run_matrix("open_store.py", tmp_path)
    assert opened.returncode == 1
    assert "first other row and wanted" in opened.stderr
