"""From format to format and back: the store at the end is the one at the beginning, and answers alike."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sqlrag import (
    Store,
    convert,
    file_facts,
    index_rows,
    load_embedder,
    prepare_embeddings,
    update_embeddings,
    verify_file,
)
from sqlrag.errors import FormatError, InputError, NotFoundError, SqlragError
from sqlrag.formats.exchange import stored_contents, write_store
from sqlrag.formats.parquet import write_parquet
from tests.support.exchange_files import assert_equal_stores
from tests.support.helpers import HASHING, ROOT, timeless, write

HANDBOOK = ROOT / "data" / "handbook"
NAMES = {"ragmd": "kb.ragmd", "ragfile": "kb.ragfile", "faiss": "vectors-kb.faiss", "parquet": "kb.parquet"}
CHAINS = [
    *([name] for name in NAMES),
    ["ragmd", "faiss", "ragfile", "parquet"],
    ["parquet", "ragfile", "faiss", "ragmd"],
    ["faiss", "parquet", "ragmd", "ragfile"],
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """The handbook, PDFs and all, and a second collection with tags, metadata and odd texts."""
    folder = tmp_path_factory.mktemp("formats")
    path = prepare_embeddings(HANDBOOK, folder / "kb.duckdb", **HASHING).path
    odd = write(
        folder / "odd",
        a_md="---\ntitle: '## Chunks'\ntags: [x, '---']\nyear: 2024\nwhen: 2024-05-01\n---\n# One\n\n```json\n[]\n```\n"
        "\n---\n\n## Vectors\n\n```base64\nAAAA\n```\n",
        b_txt="Ein Satz. 東京大学の図書館。 emoji 🦆 and \x85 a\u2028line - with-dashes\n\n" + "naïve " * 40,
        c_md="# Größe\n\n" + "word " * 900,
    )
    update_embeddings(odd, path, collection="odd", progress="off")
    return path


@pytest.fixture(scope="module")
def questions(store):
    """At least 200: those of the handbook, and its headings."""
    asked = [json.loads(line)["text"] for line in (ROOT / "data" / "questions.jsonl").read_text("utf-8").splitlines()]
    pages = [page.read_text("utf-8") for page in sorted(HANDBOOK.rglob("*.md"))]
    titles = [title for page in pages for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE)]
    found = list(dict.fromkeys([*asked, "東京大学", "naïve", "with-dashes", *titles]))[:200]
    assert len(found) == 200
    return found


def answers(path, questions):
    with Store(path) as store:
        return [
            timeless(ask(question, top_k=10))
            for question in questions
            for ask in (store.hybrid_query, store.vector_query, store.lexical_query)
        ]


@pytest.fixture(scope="module")
def wanted(store, questions):
    return answers(store, questions)


@pytest.mark.slow
@pytest.mark.parametrize("chain", CHAINS, ids="-".join)
def test_a_store_comes_back_the_same(store, wanted, questions, tmp_path, chain):
    last = store
    for name in chain:
        done = convert(last, tmp_path / NAMES[name])
        assert (done.notices, done.path.exists()) == ([], True)
        assert verify_file(done.path).chunks == done.chunks
        last = done.path
    back = convert(last, tmp_path / "back.duckdb").path
    assert_equal_stores(store, back)
    assert answers(back, questions) == wanted
    with Store(back) as opened:
        assert opened.check() == []


@pytest.mark.parametrize("name", NAMES)
class TestEachFormat:
    @pytest.mark.slow
    def test_the_same_store_gives_the_same_bytes(self, store, tmp_path, name):
        files = []
        for folder in ("one", "two"):
            (tmp_path / folder).mkdir()
            convert(store, tmp_path / folder / NAMES[name])
            files.append(
                {
                    str(file.relative_to(tmp_path / folder)): file.read_bytes()
                    for file in sorted((tmp_path / folder).rglob("*"))
                    if file.is_file()
                }
            )
        assert files[0] == files[1]

    @pytest.mark.rest
    def test_filters_choose_whole_documents(self, store, tmp_path, name):
        done = convert(store, tmp_path / NAMES[name], collection="odd", tags_any=["x"], metadata={"year": 2024})
        assert (done.documents, verify_file(done.path).documents) == (1, 1)
        with pytest.raises(InputError, match="store"):
            convert(done.path, tmp_path / "x.duckdb", collection="odd")

    @pytest.mark.slow
    def test_paths_are_absolute_only_on_request(self, store, tmp_path, name):
        def paths(source, **options):
            made = convert(source, tmp_path / "paths" / NAMES[name], overwrite=True, **options).path
            back = convert(made, tmp_path / "paths.duckdb", overwrite=True).path
            with Store(back) as opened:
                rows = opened.cursor().execute("SELECT file_path FROM source_documents").fetchall()
                return {path for (path,) in rows}

        (tmp_path / "paths").mkdir()
        with Store(store) as opened:
            folders = opened.cursor().execute("SELECT collection, input_dir FROM collections").fetchall()
        assert not any(Path(path).is_absolute() for path in paths(store))
        whole = paths(store, absolute_paths=True)
        assert all(path.startswith(tuple(folder for _, folder in folders)) for path in whole)
        with pytest.raises(InputError, match="absolute paths need a store"):
            convert(tmp_path / "paths" / NAMES[name], tmp_path / "x.duckdb", absolute_paths=True)

    @pytest.mark.slow
    def test_it_is_taken_into_a_store_in_place_of_what_it_had(self, store, tmp_path, name):
        odd = convert(store, tmp_path / NAMES[name], collection="odd")
        both = convert(store, tmp_path / "both.duckdb").path
        with Store(both, read_only=False) as opened:
            opened.delete_documents(doc_ids=["odd:a.md"])
        assert convert(odd.path, both).documents == 3
        with Store(both) as opened:
            assert opened.check() == []
            assert "odd:a.md" in opened.sources(["odd:a.md"])

    @pytest.mark.slow
    def test_what_exists_is_not_replaced_unasked(self, store, tmp_path, name):
        done = convert(store, tmp_path / NAMES[name], collection="odd")
        with pytest.raises(SqlragError, match="exists already"):
            convert(store, done.path)
        assert verify_file(done.path).documents == 3
        assert convert(store, done.path, overwrite=True).documents > 40

    def test_facts(self, store, tmp_path, name):
        facts = file_facts(convert(store, tmp_path / NAMES[name], collection="odd").path)
        assert (facts.model, facts.dimensions, facts.documents) == ("hashing-64", 64, 3)
        assert facts.format == {"faiss": "faiss_json"}.get(name, name)
        assert facts.size_bytes > 4 * 64 * facts.chunks
        assert "hashing-64 (64 dimensions)" in str(facts)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("fingerprint", text) for text in ("[1.0]", f"[{', '.join(['0.0'] * 64)}]", f"[{', '.join(['NaN'] * 64)}]")),
        *(("chunk_size", text) for text in ("0", "-5")),
        *(("chunk_overlap", "9999"), ("chunk_unit", "parsecs"), ("chunking_strategy", "x"), ("max_tokens", "-1")),
        *(("include_headers", "maybe"), ("llama_index_compatible", "maybe"), ("embedding_model", " ")),
        *(("stemmer", "porter'; drop"), ("header_weight", "nan")),
    ],
)
def test_settings_that_no_store_can_be_used_with_are_refused(store, tmp_path, name, value):
    with stored_contents(store, collection="odd") as contents:
        wrong = replace(contents, settings={**contents.settings, name: value})
        with pytest.raises(FormatError, match="settings of the file"):
            write_store(wrong, tmp_path / "new.duckdb")
    with stored_contents(store, collection="odd") as contents:
        wrong = replace(contents, settings={**contents.settings, name: value})
        made = write_parquet(wrong, tmp_path / "kb.parquet").path
    with pytest.raises(FormatError, match="settings of the file"):
        verify_file(made)
    assert not (tmp_path / "new.duckdb").exists()


class TestWrongUse:
    def test_names_that_tell_nothing(self, store, tmp_path):
        (tmp_path / "kb.xyz").write_text("what is this")
        with pytest.raises(InputError, match=r"kb\.xyz.*\.ragmd"):
            convert(tmp_path / "kb.xyz", tmp_path / "new.duckdb")
        with pytest.raises(InputError, match=r"new\.xyz"):
            convert(store, tmp_path / "new.xyz")
        with pytest.raises(InputError, match="one file"):
            convert(store, store)

    def test_a_format_is_known_by_what_it_holds(self, store, tmp_path):
        made = convert(store, tmp_path / "kb.ragmd", collection="odd").path
        made.rename(tmp_path / "kb.bin")
        assert file_facts(tmp_path / "kb.bin").format == "ragmd"
        assert convert(tmp_path / "kb.bin", tmp_path / "new.duckdb").documents == 3

    @pytest.mark.slow
    def test_a_file_that_this_process_has_open(self, store, tmp_path):
        for name in ("kb.ragfile", "kb.ragmd"):
            made = convert(store, tmp_path / name, collection="odd").path
            with made.open("rb"):
                assert convert(made, tmp_path / f"{name}.parquet").documents == 3
        with Store(store):
            assert file_facts(store).format == "duckdb"

    def test_a_source_that_is_not_there(self, tmp_path):
        for name in ("no.ragmd", "no.ragfile", "vectors-no.faiss", "no.parquet", "no.duckdb"):
            with pytest.raises(NotFoundError):
                convert(tmp_path / name, tmp_path / "new.duckdb")
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("name", ["a.ragmd", "a.md", "a.ragfile", "vectors-a.faiss"])
    def test_a_source_of_another_format_leaves_the_target_as_it_was(self, store, tmp_path, name):
        target = convert(store, tmp_path / "kb.duckdb", collection="odd").path
        before = target.read_bytes()
        (tmp_path / name).write_bytes(b"\x80\x04\x95 a pickle, say" * 9)
        with pytest.raises((FormatError, NotFoundError)):
            convert(tmp_path / name, target)
        with pytest.raises((FormatError, NotFoundError)):
            convert(tmp_path / name, target, overwrite=True)
        assert target.read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["kb.duckdb", name])

    def test_a_json_file_belongs_to_an_index(self, store, tmp_path):
        with pytest.raises(InputError, match="JSON"):
            convert(store, tmp_path / "kb.ragmd", source_json="x.json")
        with pytest.raises(InputError, match="JSON"):
            convert(store, tmp_path / "kb.ragmd", target_json="x.json")


@pytest.mark.parametrize("name", ["new.ragmd", "new.ragfile", "new.parquet", "vectors-new.faiss", "new.duckdb"])
@pytest.mark.rest
def test_what_stays_behind_of_tables_of_rows_is_told(tmp_path, name):
    model = load_embedder("hashing-64", provider="hashing")
    path = tmp_path / "kb.duckdb"
    for collection in ("tickets", "reviews"):
        source = f"SELECT 1 AS id, 'The {collection} came late.' AS body"
        index_rows(source, path, key="id", text="body", collection=collection, embedder=model, verbose=False)
    (told,) = (one for one in convert(path, tmp_path / name).notices if "rows_of" in one)
    assert "rows of reviews, tickets as documents" in told
    again = tmp_path / "again.duckdb"
    convert(tmp_path / name, again)
    with Store(again) as store:
        assert store.row_sources() == []
        assert len(store.lexical_query("late")) == 2
    chosen = convert(path, tmp_path / "tickets.ragmd", collection="tickets")
    (told,) = (one for one in chosen.notices if "rows_of" in one)
    assert "rows of tickets as" in told
    assert verify_file(path).notices == []
