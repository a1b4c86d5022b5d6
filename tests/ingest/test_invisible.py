"""What shows nothing is blank: files, chunks, questions, tags, titles."""

from __future__ import annotations

import pytest

from sqlrag import Store, build_prompt, hybrid_query, lexical_query, prepare_embeddings
from sqlrag.errors import InputError
from sqlrag.ingest.chunk import chunk
from sqlrag.types import ChunkPolicy, Document
from tests.support.helpers import HashingEmbedder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("invisible")
    pages = folder / "pages"
    pages.mkdir()
    texts = {
        "zero.md": "\u200b\u200d\u2060\n",
        "soft.txt": "\u00ad",
        "marks.txt": "\u200e\u202a",
        "title.md": '---\ntitle: "\\u200b"\n---\n\u200b',
        "nul.txt": "foo\0bar zeta",
        "tags.md": '---\ntags: ["\\u200b", kept]\n---\nkiwi',
    }
    for name, text in texts.items():
        (pages / name).write_text(text, "utf-8")
    return prepare_embeddings(pages, folder / "kb.duckdb", embedder=HashingEmbedder("hashing-8"), verbose=False)


def test_fault_T8_an_invisible_file_makes_no_chunk_and_no_call(made) -> None:
    report = made.report
    empty = {failure.doc_id for failure in report.failures if failure.status == "empty"}
    assert empty == {"zero.md", "soft.txt", "marks.txt", "title.md"}
    assert (report.documents, report.chunks, report.embedded) == (2, 2, 2)


def test_fault_T6_both_words_are_found(made) -> None:
    for word in ("foo", "bar", "zeta"):
        assert [row["doc_id"] for row in lexical_query(word, made.path)] == ["nul.txt"]


def test_fault_T8_an_invisible_tag_is_none(made) -> None:
    with Store(made.path) as store:
        rows = store.cursor().execute("SELECT tags FROM documents WHERE doc_id = 'tags.md'").fetchall()
    assert rows == [(["kept"],)]


@pytest.mark.parametrize("question", ["\u200b", "\ufeff", "\u00ad", " \u200e\n"])
def test_fault_T8_an_invisible_question_is_blank(made, question: str) -> None:
    for ask in (hybrid_query, lexical_query):
        with pytest.raises(InputError, match="blank"):
            ask(question, made.path)
    with pytest.raises(InputError, match="blank"):
        build_prompt(question, [])


def test_fault_T8_an_invisible_section_makes_no_chunk() -> None:
    policy = ChunkPolicy(chunk_unit="chars", chunk_size=10, chunk_overlap=0)
    found = chunk(Document("a.txt", "one two\n\n" + 8 * "\u200b" + "\n\nthree four"), policy)
    assert [one.content for one in found] == ["one two", "three four"]
    assert [one.chunk_index for one in found] == [0, 1]
