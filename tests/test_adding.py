"""add_documents: documents that a program has as bytes."""

from __future__ import annotations

import pytest

import sqlrag
from sqlrag import add_documents


@pytest.fixture
def kb(tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "pond.md").write_text("# Pond\n\nDucks swim.")
    (docs / "oven.md").write_text("# Oven\n\nBread rises.")
    return sqlrag.prepare_embeddings(docs, tmp_path / "kb.duckdb", embedding_provider="hashing", verbose=False).path


def documents(kb):
    with sqlrag.Store(kb) as store:
        return dict(store.cursor().execute("SELECT doc_id, text FROM source_documents ORDER BY doc_id").fetchall())


def test_new_changed_and_unchanged(kb):
    before = documents(kb)
    given = {"new/a.txt": b"Geese fly.", "pond.md": b"# Pond\n\nSwans swim."}
    report = add_documents(given, kb)
    assert (report.added, report.changed, report.missing, report.removed) == (["new/a.txt"], ["pond.md"], [], [])
    assert documents(kb) == {**before, "new/a.txt": "Geese fly.", "pond.md": "# Pond\n\nSwans swim."}
    again = add_documents(given, kb)
    assert (again.unchanged, again.embedded, again.documents) == (["new/a.txt", "pond.md"], 0, 0)
    assert sqlrag.check(kb) == []


def test_where_the_documents_of_a_folder_lie_is_kept(kb, tmp_path):
    add_documents({"oven.md": b"# Oven\n\nBread rises.", "up.md": b"# Up"}, kb)
    report = sqlrag.update_embeddings(tmp_path / "docs", kb, prune=True, verbose=False)
    assert sorted(report.unchanged) == ["oven.md", "pond.md"]
    assert (report.removed, report.failures) == ([], [])
    assert "up.md" in documents(kb)


def test_a_folder_does_not_take_back_what_was_put_in(kb, tmp_path):
    add_documents({"pond.md": b"# Pond\n\nSwans swim."}, kb)
    report = sqlrag.update_embeddings(tmp_path / "docs", kb, verbose=False)
    assert [failure.doc_id for failure in report.failures] == ["pond.md"]
    assert documents(kb)["pond.md"].endswith("Swans swim.")


def test_the_same_text_under_another_name_is_not_embedded(kb):
    report = add_documents({"copy.md": b"# Pond\n\nDucks swim."}, kb, collection="up")
    assert (report.added, report.embedded, report.reused) == (["up:copy.md"], 0, 1)


@pytest.mark.parametrize(
    "name",
    [
        *("../x.md", "/etc/x.md", "a/../../x.md", "a//x.md", "", ".", "..", ".hidden.md", "a/.b/x.md", "C:\\x.md"),
        *("c:x.md", "a\\..\\x.md", "x\x00.md", "x\n.md", "x.exe", "x", "a/ /x.md", "x" * 300 + ".md", "up:x.md"),
    ],
)
def test_a_bad_name_stops_no_other_and_leaves_nothing(kb, name, tmp_path):
    before = set(tmp_path.rglob("*"))
    report = add_documents({name: b"# X\n\ntext", "good.md": b"# Good"}, kb)
    assert report.added == ["good.md"]
    assert [failure.status for failure in report.failures] == ["failed"]
    assert set(tmp_path.rglob("*")) == before


def test_wrong_arguments(kb):
    for wrong in ([b"x"], {"a.md": "text"}, {1: b"x"}, None):
        with pytest.raises(sqlrag.InputError):
            add_documents(wrong, kb)
    with pytest.raises(sqlrag.InputError, match="max_bytes"):
        add_documents({}, kb, max_bytes=0)
    assert add_documents({}, kb).documents == 0
