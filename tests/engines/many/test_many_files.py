"""Many files as one: what merge keeps and refuses, and that several files are searched as the merged one is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pytest
from typer.testing import CliRunner

import sqlrag
from sqlrag import (
    Chunk,
    Document,
    InputError,
    ModelMismatchError,
    NotFoundError,
    RetrievePlan,
    Store,
    StoreError,
    StoreExistsError,
    StoreLockedError,
    Stores,
    hybrid_query,
    lexical_query,
    merge,
    vector_query,
)
from sqlrag.cli import app
from sqlrag.embedders import HashingEmbedder
from tests.support.chat_server import ChatServer, serving
from tests.support.helpers import DATA, HASHING, ROOT, ids
from tests.support.residence import settle

HANDBOOK = ROOT / "data" / "handbook"
BEIR = DATA / "nfcorpus"
QUESTIONS = [
    "How do I filter by tag?",
    "StoreLockedError PID",
    "the of",
    "zzzz qqq",
    "naïve C++ café",
    '"sign codes" rank*',
    "vect* stor*",
    '"no such words follow"',
]
# A way to search: its mode and options.
FILTERED = {
    "tags": {"tags_any": ["maintenance", "search", "even"]},
    "collection": {"collection": "default"},
    "metadata": {"metadata": {"$or": [{"mime": "text/plain"}, {"year": {"$gte": 2022}}]}},
}
WAYS = {
    "adaptive": ("hybrid", {}),
    "rrf": ("hybrid", {"fusion": "rrf"}),
    "weighted": ("hybrid", {"fusion": "weighted", "vector_weight": 0.3}),
    "convex": ("hybrid", {"fusion": "convex", "alpha": 0.6}),
    "feedback": ("hybrid", {"feedback": 3}),
    "expansion": ("hybrid", {"expansion": 10}),
    "both": ("hybrid", {"feedback": 2, "expansion": 5, "fusion": "convex"}),
    "syntax": ("hybrid", {"syntax": True}),
    "sources": ("hybrid", {"include_source_docs": True}),
    "vector": ("vector", {}),
    "similar": ("vector", {"min_similarity": 0.25}),
    "lexical": ("lexical", {}),
    "conjunctive": ("lexical", {"conjunctive": True}),
    "headings": ("lexical", {"fields": "heading_path", "k1": 0.9, "b": 0.4}),
    **{f"adaptive, {name}": ("hybrid", options) for name, options in FILTERED.items()},
    **{f"convex, {name}": ("hybrid", {"fusion": "convex", **options}) for name, options in FILTERED.items()},
    "nothing passes": ("hybrid", {"metadata": {"nowhere": 1}}),
}
SCORES = ("score", "vector_score", "lexical_score")


def below(documents):
    """Return documents with their paths below their folder: one collection of several folders has whole paths."""
    assert all(f"/{one['file_path']}".endswith(f"/{one['doc_id']}") for one in documents)
    return [{**one, "file_path": one["doc_id"]} for one in documents]


def assert_same(found, wanted):
    """Ids and order, ranks and everything else, and scores within 1e-9."""
    assert ids(found) == ids(wanted)
    for row, other in zip(found, wanted, strict=True):
        for name in SCORES:
            both = row[name], other[name]
            assert both == (None, None) or abs(both[0] - both[1]) <= 1e-9, (row["node_id"], name, both)
        row, other = ({**one, **dict.fromkeys(SCORES)} for one in (row, other))
        if row.get("source_doc"):
            row["source_doc"], other["source_doc"] = below([row["source_doc"]]), below([other["source_doc"]])
        assert row == other
    assert found.notices == wanted.notices
    assert found.candidates == wanted.candidates


def search(store, way, question, **more):
    mode, options = WAYS[way]
    if mode == "lexical":
        more = {name: value for name, value in more.items() if name not in ("query_vector", "exact")}
    return getattr(store, f"{mode}_query")(question, **{"top_k": 10, **options, **more})


def tables(path):
    """Every row of a file, and the settings that do not count time."""
    with Store(path) as store:
        con = store.cursor()
        names = con.execute(
            "SELECT schema_name || '.' || table_name FROM duckdb_tables() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
        rows = {name: con.execute(f"FROM {name}").fetchall() for (name,) in names}
        rows["main.embedding_metadata"] = {key: value for key, value, _ in rows["main.embedding_metadata"]}
        return rows


def empty(path, model="hashing-64", **options):
    Store.create(path, int(model.partition("-")[2]), embedder=HashingEmbedder(model), **options).close()
    return path


def one_chunk(path, doc_id, text="a text", node_id="", **options):
    """Make a file of one document of one chunk."""
    with Store.create(path, 4, **options) as store:
        store.upsert([Document(doc_id, text)], [Chunk(doc_id, 0, text, given_id=node_id)], [[1, 0, 0, 0]])
    return path


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The handbook in three files and an empty one, and in one file."""
    root = tmp_path_factory.mktemp("many")
    pages = sorted(page for page in HANDBOOK.rglob("*") if page.suffix in (".md", ".txt"))
    for number, page in enumerate(pages):
        for folder in (f"docs{number % 3}", "docs"):
            target = root / folder / page.relative_to(HANDBOOK)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(page, target)
    options = {**HASHING, "chunk_size": 200}
    parts = [sqlrag.prepare_embeddings(root / f"docs{n}", root / f"part{n}.duckdb", **options).path for n in range(3)]
    parts.insert(1, empty(root / "empty.duckdb"))
    whole = sqlrag.prepare_embeddings(root / "docs", root / "whole.duckdb", **options).path
    return parts, whole


@pytest.fixture(scope="module")
def parts(built):
    return built[0]


@pytest.fixture(scope="module")
def merged(parts):
    return merge(parts, parts[0].with_name("merged.duckdb")).path


class TestMerge:
    @pytest.mark.rest
    def test_the_rows_are_those_of_a_file_that_was_built_as_one_whatever_the_order(
        self, built, merged, tmp_path, monkeypatch
    ):
        parts, whole = built
        monkeypatch.setattr("sqlrag.formats.merge.BATCH_CHUNKS", 7)
        done = merge(reversed(parts), tmp_path / "reversed.duckdb")
        found, other, wanted = tables(merged), tables(done.path), tables(whole)
        assert (done.files, done.documents) == (4, len(wanted["main.source_documents"]))
        assert done.chunks == len(wanted["main.documents"]) > 300
        for name in ("main.documents", "main.document_links", *(n for n in wanted if n.startswith("fts_"))):
            assert found[name] == other[name] == wanted[name], name
        assert found["main.source_documents"] == other["main.source_documents"]
        texts = [row[3] for row in wanted["main.source_documents"]]
        assert [row[3] for row in found["main.source_documents"]] == texts
        for key in ("total_chunks", "median_chunk_size", "unique_files", "fingerprint", "stemmer", "chunk_size"):
            assert found["main.embedding_metadata"][key] == wanted["main.embedding_metadata"][key]
        assert sqlrag.check(merged) == []

    @pytest.mark.rest
    def test_records_times_and_questions_go_over(self, parts, tmp_path):
        copies = [shutil.copy(part, tmp_path) for part in parts]
        with Store(copies[0], read_only=False) as store:
            store.embed_query("a question")
            store.cursor().execute("INSERT INTO ingest_failures VALUES ('bad.pdf', 'failed', 'damaged', '2024-01-01')")
            store.cursor().execute("UPDATE source_documents SET created_at = '2020-02-02'")
        done = merge(copies, tmp_path / "all.duckdb")
        rows, sources = tables(done.path), [tables(copy) for copy in copies]
        kinds = [row[1] for row in rows["main.ingest_log"]]
        assert sorted(kinds) == ["build", "build", "build", "merge"]
        assert rows["main.query_embeddings"] == sources[0]["main.query_embeddings"] != []
        assert rows["main.ingest_failures"] == sources[0]["main.ingest_failures"] != []
        folders = sorted(row[1] for source in sources for row in source["main.collections"])
        assert [row[1] for row in rows["main.collections"]] == folders[:1]  # one collection of three folders
        # The paths of those from the other folders would be wrong below it.
        documents = []
        for source in sources:
            folder = next((row[1] for row in source["main.collections"]), folders[0])
            start = "" if folder == folders[0] else f"{folder}/"
            documents += [(row[0], start + row[1], *row[2:]) for row in source["main.source_documents"]]
        assert rows["main.source_documents"] == sorted(documents)
        assert [notice for notice in done.notices if all(folder in notice for folder in folders)] != []

    @pytest.mark.rest
    def test_vectors_ids_and_what_llama_index_said_go_over_bit_for_bit(self, tmp_path):
        random = np.random.default_rng(5)
        for name in "ab":
            with Store.create(tmp_path / f"{name}.duckdb", 130) as store:
                documents = [Document(f"{name}{n}", "x", metadata={"_node_type": "mine"}) for n in range(5)]
                chunks = [
                    Chunk(
                        d.doc_id, 0, f"word{n}", given_id=f"id-{d.doc_id}", node='{"class_name": "ImageNode", "k": 1}'
                    )
                    for n, d in enumerate(documents)
                ]
                store.upsert(documents, chunks, random.normal(size=(5, 130)))
        done = merge([tmp_path / "b.duckdb", tmp_path / "a.duckdb"], tmp_path / "ab.duckdb")
        found = tables(done.path)
        both = [row for name in "ab" for row in tables(tmp_path / f"{name}.duckdb")["main.documents"]]
        assert [row[:-1] for row in found["main.documents"]] == [row[:-1] for row in both]  # all but rid
        assert found["main.embedding_metadata"]["own_node_ids"] == "True"
        assert sqlrag.check(done.path) == []

    @pytest.mark.slow
    def test_a_document_in_two_files_is_named_with_both_and_the_remedy(self, tmp_path):
        one, two = one_chunk(tmp_path / "1.duckdb", "x.md"), one_chunk(tmp_path / "2.duckdb", "x.md")
        with pytest.raises(InputError) as caught:
            merge([one, two], tmp_path / "both.duckdb")
        assert str(caught.value).startswith(f"The document 'x.md' is both in {one} and in {two}. ")
        assert "collection" in str(caught.value)
        assert "sqlrag delete" in str(caught.value)
        assert not (tmp_path / "both.duckdb").exists()

    @pytest.mark.slow
    def test_so_is_a_chunks_id(self, tmp_path):
        one = one_chunk(tmp_path / "1.duckdb", "x.md", node_id="mine")
        two = one_chunk(tmp_path / "2.duckdb", "y.md", node_id="mine")
        for use in (lambda: merge([one, two], tmp_path / "both.duckdb"), lambda: Stores([one, two])):
            with pytest.raises(InputError, match=re.escape(f"The chunk 'mine' is both in {one} and in {two}.")):
                use()

    @pytest.mark.slow
    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"model_name": "other"}, ModelMismatchError, "different models: 'given' .* and 'other'"),
            ({"stemmer": "german"}, InputError, "different stemmer: porter and german"),
            ({"heading_weight": 1}, InputError, "different heading weight: 3.0 and 1.0"),
        ],
    )
    def test_files_of_other_settings_are_refused_by_name(self, options, error, words, tmp_path):
        one = one_chunk(tmp_path / "1.duckdb", "x.md")
        two = one_chunk(tmp_path / "2.duckdb", "y.md", **options)
        for use in (
            lambda: merge([one, two], tmp_path / "both.duckdb"),
            lambda: Stores([one, two]),
            lambda: lexical_query("text", [one, two]),
        ):
            with pytest.raises(error, match=words) as caught:
                use()
            assert str(one) in str(caught.value)
            assert str(two) in str(caught.value)

    @pytest.mark.slow
    def test_so_are_other_dimensions_other_vectors_and_other_stop_words(self, tmp_path):
        one = empty(tmp_path / "1.duckdb")
        with pytest.raises(ModelMismatchError, match=r"64 dimensions\) and 'hashing-32' \(32\)"):
            merge([one, empty(tmp_path / "2.duckdb", "hashing-32")], tmp_path / "all.duckdb")
        two = empty(tmp_path / "3.duckdb")
        with Store(two, read_only=False) as store:
            store.cursor().execute("DELETE FROM fts_main_documents.stopwords WHERE word = 'the'")
        with pytest.raises(InputError, match=f"'the' is one in {re.escape(str(one))} only"):
            Stores([two, one])
        with Store(two, read_only=False) as store:
            fingerprint = json.dumps([1.0, *[0.0] * 63])
            store.cursor().execute("UPDATE embedding_metadata SET value = $1 WHERE key = 'fingerprint'", [fingerprint])
        with pytest.raises(ModelMismatchError, match=r"vectors differ: cosine -?0\.\d+ for the same text"):
            Stores([one, two])

    @pytest.mark.rest
    def test_what_cannot_be_merged_leaves_the_output_as_it_was(self, tmp_path):
        one, two = one_chunk(tmp_path / "1.duckdb", "x.md"), one_chunk(tmp_path / "2.duckdb", "y.md")
        output = one_chunk(tmp_path / "out.duckdb", "z.md")
        before = output.read_bytes()
        with pytest.raises(StoreExistsError):
            merge([one, two], output)
        with pytest.raises(InputError, match="named twice"):
            merge([one, two, str(one)], output, overwrite=True)
        with pytest.raises(InputError, match="is one of the files to merge, so it cannot be the output"):
            merge([one, output], output, overwrite=True)
        with pytest.raises(InputError, match="db_paths is empty"):
            merge([], output, overwrite=True)
        with pytest.raises(InputError, match="db_paths must be a list"):
            merge(str(one), output, overwrite=True)
        with Store(two, read_only=False) as store:
            store.cursor().execute("UPDATE documents SET embedding = [1, 'nan'::FLOAT, 0, 0]")
        with pytest.raises(StoreError, match=f"{re.escape(str(two))}: the vector of the chunk 'y.md#0' is damaged"):
            merge([one, two], output, overwrite=True)
        with Store(one, read_only=False) as store:
            store.cursor().execute("DELETE FROM source_documents")
        with pytest.raises(StoreError, match=f"{re.escape(str(one))} has 1 chunk without a document"):
            merge([one, two], output, overwrite=True)
        assert output.read_bytes() == before
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1.duckdb", "2.duckdb", "out.duckdb"]

    @pytest.mark.slow
    def test_overwriting_files_in_use_and_what_is_left_out(self, tmp_path):
        one, two = one_chunk(tmp_path / "1.duckdb", "x.md"), one_chunk(tmp_path / "2.duckdb", "y.md")
        with duckdb.connect(str(two)) as con:
            con.execute("CREATE TABLE mine AS SELECT 1")
            con.execute("INSERT INTO corpus_map VALUES ('y.md#0', 'y.md', 0, 0, 0, '')")
            con.execute("UPDATE embedding_metadata SET value = '100' WHERE key = 'chunk_size'")
        output = one_chunk(tmp_path / "out.duckdb", "z.md")
        with Store(one), Store(two):
            done = merge([two, one], output, overwrite=True)
        assert [row["doc_id"] for row in lexical_query("text", output)] == ["x.md", "y.md"]
        assert len(done.notices) == 3
        assert "chunk_size=512" in done.notices[0]
        assert done.notices[1:] == [
            f"The map of {two} is left out; corpus_map draws a new one.",
            f"Left out from {two}, since sqlrag did not create it: main.mine.",
        ]

    @pytest.mark.rest
    def test_the_command(self, parts, tmp_path):
        output = tmp_path / "all.duckdb"
        done = CliRunner().invoke(app, ["merge", *map(str, parts), "--out", str(output)])
        assert done.exit_code == 0, done.output
        assert done.stdout.startswith(f"{output} merged from 4 files: ")
        assert done.stderr.startswith("note: The collection 'default' is from several folders")
        again = CliRunner().invoke(app, ["merge", str(parts[0]), "-o", str(output), "--overwrite", "--format", "json"])
        assert json.loads(again.stdout)["files"] == 1


@pytest.fixture(scope="module", params=[False, True], ids=["SQL", "memory"])
def handles(request, parts, merged):
    with Stores(parts, resident=request.param) as many, Store(merged) as one:
        if request.param:
            settle(many)
        yield many, one, "memory" if request.param else None


class TestRanking:
    @pytest.mark.slow
    @pytest.mark.parametrize("way", WAYS)
    def test_the_handbook_in_several_files_ranks_as_in_one(self, way, handles):
        many, one, engine = handles
        for question in QUESTIONS:
            found = search(many, way, question)
            assert_same(found, search(one, way, question))
            assert found.methods.get("engine") == engine

    @pytest.mark.slow
    def test_the_functions_take_lists_and_say_which_file_each_result_is_from(self, parts, merged):
        for function in (hybrid_query, vector_query, lexical_query):
            found = function("How do I filter by tag?", [str(part) for part in parts], top_k=7)
            assert_same(found, function("How do I filter by tag?", merged, top_k=7))
            assert list(found.files) == ids(found)
            assert found[:2].files == found.files
            for node_id, path in found.files.items():
                with Store(path) as store:
                    assert [chunk.node_id for chunk in store.chunks(node_ids=[node_id])] == [node_id]
        assert len(set(found.files.values())) > 1
        assert hybrid_query("filter", merged).files == {}
        documents = (below(sqlrag.get_source_documents(ids(found), files)) for files in (parts, merged))
        assert next(documents) == next(documents)
        counts = [sqlrag.get_embedding_metadata(files) for files in (tuple(parts), merged)]
        assert counts[0]["chunks"] == counts[1]["chunks"]
        assert counts[0]["source_documents"] == counts[1]["source_documents"]

    @pytest.mark.rest
    def test_all_terms_of_a_file_may_be_foreign_to_another(self, tmp_path):
        one = one_chunk(tmp_path / "1.duckdb", "x.md", "zebra zebra")
        two = one_chunk(tmp_path / "2.duckdb", "y.md", "quagga zebras quaggas")
        whole = merge([one, two], tmp_path / "all.duckdb").path
        with Stores([two, one]) as many, Store(whole) as single:
            for question in ("quagga", "zebra quagga", '"zebra zebra"', "quag*", '"quagga zebras" zeb*', "zebras*"):
                for conjunctive in (False, True):
                    found = many.lexical_query(question, conjunctive=conjunctive)
                    assert_same(found, single.lexical_query(question, conjunctive=conjunctive))
                    assert found != [], question

    @pytest.mark.slow
    def test_common_terms_are_looked_up_where_they_matter_in_each_file(self, parts, merged, monkeypatch):
        monkeypatch.setattr("sqlrag.engines.duckdb.legs.PRUNE_FROM", 0)
        monkeypatch.setattr("sqlrag.engines.duckdb.legs._PROBE", 5)
        with Stores(parts) as many, Store(merged) as one:
            # Pairs of common words: each file has fewer chunks in all than hold one of them in all files.
            for question in ("vector word", "python read", "read word", "python each", "a file locked by a process"):
                found = many.lexical_query(question, top_k=3)
                assert "MaxScore" in found.methods["lexical"]
                assert_same(found, one.lexical_query(question, top_k=3))

    @pytest.mark.rest
    @pytest.mark.skipif(not BEIR.is_dir(), reason="needs the collection nfcorpus beside the checkout")
    def test_a_collection_by_real_vectors_in_five_files(self, tmp_path):
        vectors = np.load(BEIR / "minilm.npz")
        lines = (BEIR / "corpus.jsonl").read_text("utf-8").splitlines()
        texts = {row["_id"]: f"{row['title']}\n\n{row['text']}".strip() for row in map(json.loads, lines)}
        lines = (BEIR / "queries.jsonl").read_text("utf-8").splitlines()
        asked = {row["_id"]: row["text"] for row in map(json.loads, lines)}
        paths = [tmp_path / f"{place}.duckdb" for place in range(5)]
        hashes = {doc_id: zlib.crc32(doc_id.encode()) for doc_id in texts}
        for place, path in enumerate(paths):
            rows = [n for n, i in enumerate(vectors["corpus_ids"].tolist()) if texts[i] and hashes[i] % 5 == place]
            names = [vectors["corpus_ids"][n].item() for n in rows]
            with Store.create(path, 384) as store:
                store.upsert(
                    [Document(name, texts[name]) for name in names],
                    [
                        Chunk(
                            name,
                            0,
                            texts[name],
                            ("even",) if hashes[name] % 2 else (),
                            {"year": 2020 + hashes[name] % 4},
                        )
                        for name in names
                    ],
                    vectors["corpus"][rows],
                )
        whole = merge(paths, tmp_path / "all.duckdb").path
        chosen = np.linspace(0, len(vectors["query_ids"]) - 1, 50).astype(int)
        recalled = []
        with Stores(paths) as many, Store(whole) as one:
            for number, at in enumerate(chosen.tolist()):
                text, vector = asked[vectors["query_ids"][at].item()], vectors["queries"][at]
                for way in WAYS:
                    # Every way for some questions, those that differ most for all.
                    if number % 5 == 0 or way in ("adaptive", "rrf", "convex", "lexical", "both"):
                        more = {"query_vector": vector, "exact": True}
                        assert_same(search(many, way, text, **more), search(one, way, text, **more))
                best = ids(one.vector_query(query_vector=vector, top_k=10, exact=True))
                recalled.append(len({*best} & {*ids(many.vector_query(query_vector=vector, top_k=10))}) / 10)
        assert np.mean(recalled) >= 0.99


class TestHandles:
    def test_one_file_is_itself(self, merged):
        with Stores([merged]) as many, Store(merged) as one:
            assert_same(search(many, "convex", QUESTIONS[0]), search(one, "convex", QUESTIONS[0]))

    @pytest.mark.slow
    def test_thirty_files(self, tmp_path):
        paths = [
            one_chunk(tmp_path / f"{n}.duckdb", f"d{n:02}", " ".join(["pump"] * (n % 7 + 1) + ["valve"] * n))
            for n in range(30)
        ]
        whole = merge(paths, tmp_path / "all.duckdb").path
        with Stores(paths) as many, Store(whole) as one:
            for options in ({"fusion": "convex"}, {"expansion": 3}, {}):
                more = {"query_vector": [1, 0, 0, 0], "top_k": 40, **options}
                assert_same(many.hybrid_query("pump valve", **more), one.hybrid_query("pump valve", **more))

    @pytest.mark.slow
    def test_the_blocks_and_answers_work_on_them(self, handles):
        many, one, _ = handles
        plan = RetrievePlan(mode="hybrid", k=6)
        found, wanted = (sqlrag.retrieve("filter by tag", plan, store) for store in (many, one))
        assert found == wanted
        nodes = [candidate.node_id for candidate in found]
        assert np.array_equal(many.vectors(nodes[::-1]), one.vectors(nodes[::-1]))
        places = [(candidate.doc_id, candidate.chunk_index) for candidate in found]
        assert many.chunks_at(places) == one.chunks_at(places)
        assert many.chunks() == one.chunks()
        policy = sqlrag.CompressPolicy(sentences=1, neighbours=1)
        kept = [sqlrag.compress("filter by tag", found, policy, store=store) for store in (many, one)]
        assert kept[0] == kept[1]
        assert many.highlight("filters", ["A filter."]) == [[(2, 8)]]
        assert many.embedder().dimensions == many.dimensions == 64
        with serving(ChatServer("Use tags [1].")) as url:
            for store in (many, many.paths):
                answered = sqlrag.answer("filter by tag", store, chat_model="tiny", base_url=url)
                assert answered.error is None
                assert answered.text == "Use tags [1]."

    def test_what_has_no_answer_for_several_says_so(self, handles):
        many, *_ = handles
        with pytest.raises(NotFoundError, match=r"part0.duckdb, .* holds a chunk 'no#1'"):
            many.vectors(["no#1"])
        with pytest.raises(InputError, match=r"explained in one file, not in 4 files"):
            many.explain("tag", many.lexical_query("tag")[0]["node_id"])
        with pytest.raises(InputError, match="no cursor for 4 files"):
            many.cursor()
        with pytest.raises(ModelMismatchError, match=r"part0.duckdb and 3 other files was built with the model"):
            many.hybrid_query("tag", model_name="another")
        assert many.lexical_query("tag").sql.startswith("-- Several files")

    @pytest.mark.slow
    def test_a_file_that_changes_counts_at_once(self, parts, tmp_path):
        copies = [Path(shutil.copy(part, tmp_path)) for part in parts]
        with Store(copies[0], read_only=False) as writer, Stores(copies) as many:
            gone = writer.hybrid_query("filter by tag")[0]["node_id"]
            assert gone in ids(many.hybrid_query("filter by tag", top_k=50))
            writer.delete_documents(doc_ids=writer.chunks(node_ids=[gone])[0].doc_id)
            writer.upsert([Document("new.md", "filter by tag")], [Chunk("new.md", 0, "filter by tag")], [[1] * 64])
            after = many.hybrid_query("filter by tag", fusion="convex", top_k=50)
        assert "new.md#0" in ids(after)
        assert gone not in ids(after)
        whole = merge(copies, tmp_path / "all.duckdb").path
        assert_same(after, hybrid_query("filter by tag", whole, fusion="convex", top_k=50))

    @pytest.mark.rest
    def test_threads(self, handles):
        many, one, _ = handles
        jobs = [(way, question) for way in ("adaptive", "convex", "both", "lexical") for question in QUESTIONS[:5]] * 2
        wanted = {job: search(one, *job) for job in jobs}
        with ThreadPoolExecutor(8) as pool:
            for job, found in zip(jobs, pool.map(lambda job: search(many, *job), jobs), strict=True):
                assert_same(found, wanted[job])

    @pytest.mark.slow
    def test_a_file_that_is_missing_locked_or_closed(self, parts, tmp_path):
        copies = [Path(shutil.copy(part, tmp_path)) for part in parts]
        code = "import sys, duckdb\ncon = duckdb.connect(sys.argv[1])\nprint('held', flush=True)\nsys.stdin.read()"
        held = subprocess.Popen([sys.executable, "-c", code, copies[2]], stdin=-1, stdout=-1)
        try:
            assert held.stdout.readline() == b"held\n"
            with pytest.raises(StoreLockedError, match=re.escape(str(copies[2]))):
                Stores(copies, wait_seconds=0)
        finally:
            held.communicate(b"")
        many = Stores(copies)  # nothing was left open
        wanted = many.hybrid_query("filter by tag")
        copies[2].unlink()
        assert many.hybrid_query("filter by tag") == wanted  # who has it open keeps it
        many.close()
        many.close()
        assert "closed" in repr(many)
        with pytest.raises(StoreError, match="has been closed"):
            many.hybrid_query("filter by tag")
        with pytest.raises(StoreError, match="has been closed"):
            many.sources(["faq.md"])
        with pytest.raises(NotFoundError, match=re.escape(str(copies[2]))):
            Stores(copies)
        copies[2].write_bytes(copies[0].read_bytes())
        with pytest.raises(InputError, match="is both in"):
            Stores(copies)

    @pytest.mark.slow
    def test_the_commands(self, parts, merged, monkeypatch):
        named = [argument for part in parts for argument in ("--db", str(part))]
        for command in ("hybrid-query", "vector-query", "lexical-query"):
            done = CliRunner().invoke(app, [command, "filter by tag", *named, "--format", "json"])
            alone = CliRunner().invoke(app, [command, "filter by tag", "--db", str(merged), "--format", "json"])
            assert done.exit_code == 0, done.output
            assert done.stdout == alone.stdout
            for flag in ("--sql", "--explain"):
                refused = CliRunner().invoke(app, [command, "filter by tag", *named, flag])
                assert refused.exit_code == 2
                assert "take one file" in refused.output
        table = CliRunner().invoke(app, ["lexical-query", "filter by tag", *named, "--top-k", "1"]).stdout
        assert re.search(r"^\S+#\d+ is from .*part\d.duckdb$", table, re.MULTILINE)
        prompts = [
            CliRunner().invoke(app, ["prompt", "filter by tag", *files]) for files in (named, ["--db", str(merged)])
        ]
        assert prompts[0].stdout == prompts[1].stdout != ""
        monkeypatch.setenv("SQLRAG_DB", ":".join(map(str, parts)))
        assert CliRunner().invoke(app, ["vector-query", "tag"]).exit_code == 0


def test_the_queries_are_logged_and_no_log_is_a_file_that_is_searched(parts, tmp_path):
    settings = sqlrag.Settings(query_log=tmp_path / "log.duckdb")
    with Stores(parts, settings=settings) as many:
        many.hybrid_query("filter by tag")
    with duckdb.connect(str(tmp_path / "log.duckdb")) as con:
        assert con.execute("SELECT store, results FROM queries").fetchall() == [(many.path, 5)]
    with pytest.raises(InputError, match="query_log"):
        Stores(parts, settings=replace(settings, query_log=parts[2]))
    Stores(parts).close()  # nothing was left open
