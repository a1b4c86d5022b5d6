"""From a folder to a store file, end to end."""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import threading
import warnings
from datetime import datetime
from pathlib import Path

import duckdb
import numpy as np
import pytest

from sqlrag import Store, hybrid_query, index_rows, prepare_embeddings, update_embeddings
from sqlrag.arguments import with_commands
from sqlrag.cancellation import Stopped, Work, pause
from sqlrag.embedders import PROBE_TEXT
from sqlrag.errors import (
    InputError,
    ModelMismatchError,
    NotAStoreError,
    NotFoundError,
    ProviderError,
    StoreError,
    StoreExistsError,
    StoreLockedError,
)
from sqlrag.ingest import run
from sqlrag.ingest.build import lexical
from tests.support.helpers import (
    HASHING,
    MINILM,
    ROOT,
    NotANumber,
    Recorder,
    build,
    ids,
    left_behind,
    pdf,
    python,
    real_model,
    write,
)


def rows(path, sql):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(sql).fetchall()


def metadata_of(path):
    return dict(rows(path, "SELECT key, value FROM embedding_metadata"))


class TestReport:
    @pytest.mark.slow
    def test_counts_failures_and_skipped_files(self, tmp_path):
        root = write(
            tmp_path / "docs",
            a_md="# A\n\nalpha",
            sub__b_txt="beta",
            c_pdf=pdf("gamma", "delta"),
            broken_pdf=b"%PDF-1.4 nothing",
            empty_md="",
            image_png=b"\x89PNG",
        )
        prepared = prepare_embeddings(root, tmp_path / "kb.duckdb", **HASHING)
        report = prepared.report
        assert (report.files, report.documents, report.chunks) == (5, 3, 4)  # the PDF has a chunk a page
        assert (report.failed, report.empty) == (1, 1)
        assert [(failure.doc_id, failure.status) for failure in report.failures] == [
            ("broken.pdf", "failed"),
            ("empty.md", "empty"),
        ]
        assert [(file.path, file.reason) for file in report.skipped] == [("image.png", "unsupported suffix '.png'")]
        assert set(report.seconds) == {"read", "chunk", "embed", "store", "index"}
        assert all(seconds >= 0 for seconds in report.seconds.values())
        assert prepared.path == (tmp_path / "kb.duckdb").resolve()
        assert repr(prepared) == f"SqlragIndex({str(prepared.path)!r}: 3 documents, 4 chunks, 1 failed)"
        assert "1 failed, 1 empty, 1 file skipped" in str(report)

        # The tables say the same.
        assert rows(prepared.path, "SELECT doc_id, status, reason FROM ingest_failures ORDER BY doc_id") == [
            (failure.doc_id, failure.status, failure.reason) for failure in report.failures
        ]
        assert rows(prepared.path, "SELECT collection, input_dir FROM collections") == [("default", str(root))]
        (run,) = rows(
            prepared.path, "SELECT input_dir, collection, files, chunks, failed, skipped, seconds FROM ingest_log"
        )
        assert run[:-1] == (str(root), "default", 5, 4, 1, 1)
        assert set(json.loads(run[-1])) >= {"read", "chunk", "embed", "store"}
        ((started, finished),) = rows(prepared.path, "SELECT started_at, finished_at FROM ingest_log")
        assert started <= finished
        with Store(prepared.path) as store:
            assert store.check() == []

    def test_a_run_in_which_every_file_fails_makes_no_file_and_keeps_the_old_one(self, tmp_path):
        path = build(tmp_path, good_md="alpha")
        bad = write(tmp_path / "bad", a_md="", b_txt=" \n")
        with pytest.raises(NotFoundError, match=r"None of the 2 files.*a\.md: the file is empty.*b\.txt"):
            prepare_embeddings(bad, path, overwrite=True, **HASHING)
        assert [row["doc_id"] for row in hybrid_query("alpha", path)] == ["good.md"]
        assert {file.name for file in tmp_path.iterdir()} == {"docs", "bad", path.name}

    def test_nothing_is_printed_and_one_line_is_logged(self, tmp_path, capsys, caplog):
        with caplog.at_level(logging.INFO, "sqlrag"):
            build(tmp_path, a_md="alpha")
        assert capsys.readouterr() == ("", "")
        assert len(caplog.records) == 1

    @pytest.mark.parametrize("surrogate", ["\ud835"])
    def test_a_reason_with_a_lone_surrogate_can_be_stored(self, tmp_path, surrogate):
        def extractor(data):
            raise ValueError(f"bad {surrogate} text")

        path = build(tmp_path, a_md="alpha", b_pdf=pdf("x"), options={"pdf_extractor": extractor})
        ((reason,),) = rows(path, "SELECT reason FROM ingest_failures")
        assert "bad \ufffd text" in reason

    def test_a_folder_whose_name_is_no_utf8(self, tmp_path):
        root = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
        prepared = prepare_embeddings(write(root, a_md="alpha"), tmp_path / "kb.duckdb", **HASHING)
        assert rows(prepared.path, "SELECT input_dir FROM collections") == [(f"{tmp_path}/caf\ufffd",)]

    def test_the_tilde_is_the_home_folder(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        write(tmp_path / "docs", a_md="alpha")
        prepared = prepare_embeddings("~/docs", "~/kb.duckdb", **HASHING)
        assert prepared.path == tmp_path / "kb.duckdb"
        assert rows(prepared.path, "SELECT input_dir FROM collections") == [(str(tmp_path / "docs"),)]


class TestEmbeddingMetadata:
    # design of the published layout: sqlrooms-rag 0.1.2 reads these 21 keys
    PUBLISHED = {
        "version", "created_at", "embedding_provider", "embedding_model", "embedding_dimensions", "chunking_strategy",
        "chunk_size", "include_headers", "header_weight", "total_source_documents", "unique_files",
        "source_total_characters", "total_chunks", "min_chunk_size", "max_chunk_size", "median_chunk_size",
        "mean_chunk_size", "chunks_total_characters", "hybrid_search_enabled", "fts_enabled",
        "source_documents_stored",
    }  # fmt: skip

    def test_the_published_keys_and_their_values(self, tmp_path):
        path = build(tmp_path, a_md="# A\n\nalpha", b_txt="beta beta", options={"chunk_size": 100})
        found = metadata_of(path)
        assert len(self.PUBLISHED) == 21
        assert found.keys() >= self.PUBLISHED
        # a.md is one chunk of 10 characters, b.txt one of 9.
        assert {key: found[key] for key in self.PUBLISHED - {"created_at"}} == {
            "version": "1.0.0",
            "embedding_provider": "hashing",
            "embedding_model": "hashing-64",
            "embedding_dimensions": "64",
            "chunking_strategy": "markdown-aware",
            "chunk_size": "100",
            "include_headers": "True",
            "header_weight": "3",
            "total_source_documents": "2",
            "unique_files": "2",
            "source_total_characters": "19",
            "total_chunks": "2",
            "min_chunk_size": "9",
            "max_chunk_size": "10",
            "median_chunk_size": "10",
            "mean_chunk_size": "10",
            "chunks_total_characters": "19",
            "hybrid_search_enabled": "True",
            "fts_enabled": "True",
            "source_documents_stored": "True",
        }
        assert datetime.fromisoformat(found["created_at"]).tzinfo is not None
        assert {"schema_version", "sqlrag_version", "duckdb_version", "fingerprint", "stemmer"} <= found.keys()
        assert found["duckdb_version"] == duckdb.__version__

    def test_what_options_change(self, tmp_path):
        options = {
            "use_markdown_chunking": False, "include_headers_in_chunks": False, "header_weight": 1.5,
            "chunk_unit": "chars", "chunk_size": 200, "stemmer": "german",
        }  # fmt: skip
        found = metadata_of(build(tmp_path, a_md="# A\n\nalpha", options=options))
        keys = "chunking_strategy", "include_headers", "header_weight", "chunk_unit", "chunk_size", "stemmer"
        assert [found[key] for key in keys] == ["size-based", "False", "1.5", "chars", "200", "german"]
        assert found["chunk_overlap"] == "40"  # a fifth


FRONT = (
    "---\ntitle: Über uns\nyear: 2024\nday: 2024-05-01\nlist: [1, two]\nnested: {b: 1, a: x}\n"
    "_node_content: evil\n_node_type: evil\nfile_name: evil.md\ndoc_id: A-17\n---\n# T\n\nbody"
)


class TestMetadata:
    PUBLIC = {
        "title": "Über uns", "year": 2024, "day": "2024-05-01", "list": [1, "two"], "nested": {"b": 1, "a": "x"},
        "file_name": "a.md", "file_path": "sub/a.md", "mime": "text/markdown", "doc_id": "A-17",
    }  # fmt: skip

    def test_rows_open_with_llama_index(self, tmp_path):
        from llama_index.core.vector_stores.utils import metadata_dict_to_node

        path = build(tmp_path, sub__a_md=FRONT)
        ((node_id, text, metadata),) = rows(path, "SELECT node_id, text, metadata_ FROM documents")
        stored = json.loads(metadata)
        assert isinstance(stored["_node_content"], str)  # flat: the node is a string inside
        node = metadata_dict_to_node(stored, text=text)
        assert (node.node_id, node.get_content(), node.ref_doc_id) == ("sub/a.md#0", "# T\n\nbody", "sub/a.md")
        assert node.metadata == self.PUBLIC
        assert node_id == node.node_id

    @pytest.mark.parametrize("compatible", [True, False])
    def test_results_show_the_documents_own_fields_only(self, tmp_path, compatible):
        path = build(tmp_path, sub__a_md=FRONT, options={"llama_index_compatible": compatible})
        (result,) = hybrid_query("body", path)
        assert result["metadata"] == self.PUBLIC
        assert "evil" not in json.dumps(result["metadata"])
        (shown,) = rows(path, "SELECT metadata FROM chunks")
        assert json.loads(shown[0]) == self.PUBLIC

    def test_without_llama_index_there_are_no_node_fields(self, tmp_path):
        path = build(tmp_path, sub__a_md=FRONT, options={"llama_index_compatible": False})
        ((metadata,),) = rows(path, "SELECT metadata_ FROM documents")
        assert json.loads(metadata) == self.PUBLIC


class TestChunks:
    @pytest.mark.slow
    def test_every_chunk_is_an_exact_slice_and_what_is_embedded_begins_with_the_headings(self, tmp_path):
        model = Recorder()
        text = "---\ntitle: F\n---\nintro 👩‍💻 é\r\n\r\n# One\n\n" + "word " * 300 + "\n\n## Two\n\nlast ß"
        write(tmp_path / "docs", a_md=text, b_pdf=pdf("first page", "", "third page"))
        path = prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", 64, embedder=model, chunk_overlap=8, progress="off"
        ).path
        found = rows(
            path,
            "SELECT d.text, s.text, i_start, i_end, heading_path, page, d.doc_id, visible(d.text, shown) "
            "FROM documents d JOIN source_documents s USING (doc_id) ORDER BY d.doc_id, chunk_index",
        )
        assert len(found) > 6
        for chunk, source, start, end, *_ in found:
            assert source[start:end] == chunk
            assert chunk.strip()
        assert [row[5] for row in found if row[6] == "b.pdf"] == [1, 3]
        assert {row[5] for row in found if row[6] == "a.md"} == {None}
        assert "\r" not in "".join(row[1] for row in found)
        wanted = {" > ".join(path) + "\n\n" + text if path else text for *_, path, _, _, text in found}
        assert set(model.texts) == wanted | {PROBE_TEXT}
        assert any(text.startswith("F > One > Two\n\nTwo") for text in wanted)
        with Store(path, embedder=model) as store:
            assert store.check() == []

    def test_without_headings_the_slice_alone_is_embedded(self, tmp_path):
        model = Recorder()
        write(tmp_path / "docs", a_md="# One\n\nalpha")
        prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", include_headers_in_chunks=False, embedder=model, progress="off"
        )
        assert set(model.texts) == {PROBE_TEXT, "One\n\nalpha"}
        assert rows(tmp_path / "kb.duckdb", "SELECT heading_path FROM documents") == [(["One"],)]

    def test_windows_instead_of_headings(self, tmp_path):
        files = {"a_md": "# One\n\nalpha\n\n# Two\n\nbeta"}
        path = build(tmp_path, **files, options={"use_markdown_chunking": False})
        assert rows(path, "SELECT text, heading_path FROM documents") == [(files["a_md"], [])]
        assert len(rows(build(tmp_path, "two.duckdb", **files), "FROM documents")) == 2

    def test_characters(self, tmp_path):
        path = build(tmp_path, a_txt="lorem ipsum " * 100, options={"chunk_unit": "chars", "chunk_size": 120})
        lengths = [length for (length,) in rows(path, "SELECT length(text) FROM documents")]
        assert max(lengths) <= 120
        assert min(lengths[:-1]) > 60

    def test_a_chunk_size_above_the_window_is_lowered_with_one_warning(self, tmp_path):
        model = Recorder(max_tokens=50)
        write(tmp_path / "docs", a_txt="lorem ipsum " * 200, b_txt="dolor sit " * 200)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            prepared = prepare_embeddings(
                tmp_path / "docs", tmp_path / "kb.duckdb", 600, embedder=model, progress="off"
            )
        assert [str(w.message) for w in caught] == prepared.report.warnings
        assert prepared.report.warnings == ["chunk_size 600 is lowered to 50 tokens, the window of hashing-64."]
        assert Path(caught[0].filename) == Path(__file__)  # it points at the caller
        assert metadata_of(prepared.path)["chunk_size"] == "50"
        assert max(len(model.token_offsets(text)) for text in model.texts if text != PROBE_TEXT) == 50

    def test_equal_texts_are_embedded_once(self, tmp_path):
        model = Recorder()
        write(tmp_path / "docs", a_md="# the same", b_md="# the same", sub__c_md="# another")
        prepared = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert sorted(model.texts) == sorted([PROBE_TEXT, "the same\n\nthe same", "another\n\nanother"])
        assert (prepared.report.embedded, prepared.report.chunks) == (2, 3)
        assert rows(prepared.path, "SELECT count(DISTINCT embedding) FROM documents") == [(2,)]

    def test_prefixes_of_passages_and_queries(self, tmp_path):
        model = Recorder(passage_prefix="passage: ", query_prefix="query: ")
        write(tmp_path / "docs", a_txt="alpha")
        path = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off").path
        with Store(path, embedder=model) as store:
            store.hybrid_query("who?")
        assert model.texts.count("passage: a\n\nalpha") == model.texts.count("query: who?") == 1
        assert not [text for text in model.texts if text.count(": ") != 1]
        assert rows(path, "SELECT text FROM documents") == [("alpha",)]


class TestOptions:
    def test_a_collection_is_in_the_ids(self, tmp_path):
        path = build(tmp_path, sub__a_md="alpha", options={"collection": "manuals"})
        assert rows(path, "SELECT node_id, doc_id, collection FROM documents") == [
            ("manuals:sub/a.md#0", "manuals:sub/a.md", "manuals")
        ]
        assert rows(path, "SELECT doc_id, collection, file_name FROM source_documents") == [
            ("manuals:sub/a.md", "manuals", "a.md")
        ]
        assert rows(path, "SELECT collection FROM collections") == [("manuals",)]
        assert rows(path, "SELECT collection FROM ingest_log") == [("manuals",)]
        (result,) = hybrid_query("alpha", path)
        assert result["metadata"]["file_path"] == "sub/a.md"

    def test_patterns(self, tmp_path):
        files = {"a_md": "alpha", "b_txt": "beta", "guides__c_md": "gamma"}
        path = build(tmp_path, **files, options={"patterns": ["guides/*"]})
        assert rows(path, "SELECT doc_id FROM source_documents") == [("guides/c.md",)]
        with pytest.raises(NotFoundError, match=r"matches none of the patterns \(3\)"):
            prepare_embeddings(tmp_path / "docs", tmp_path / "x.duckdb", **HASHING, patterns=["*.rst"])

    def test_an_extractor_of_ones_own(self, tmp_path):
        path = build(tmp_path, a_pdf=pdf("x"), options={"pdf_extractor": lambda data: ["", "from an OCR"]})
        assert rows(path, "SELECT text, page FROM documents") == [("from an OCR", 2)]

    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"chunk_size": 0}, InputError, "chunk_size"),
            ({"chunk_size": "512"}, InputError, "chunk_size"),
            ({"chunk_size": True}, InputError, "chunk_size"),
            ({"chunk_size": 10, "chunk_overlap": 10}, InputError, "chunk_overlap"),
            ({"chunk_unit": "words"}, InputError, "chunk_unit"),
            ({"header_weight": -1}, InputError, "header_weight"),
            ({"header_weight": float("nan")}, InputError, "header_weight"),
            ({"collection": ""}, InputError, "collection"),
            ({"collection": 5}, InputError, "collection"),
            ({"collection": "a:b"}, InputError, "collection"),
            ({"stemmer": "klingon"}, InputError, "klingon"),
            ({"api_key": "secret-key"}, InputError, "api_key"),
            ({"embed_dim": 63}, ModelMismatchError, "63"),
            ({"embedding_provider": "nobody"}, InputError, "nobody"),
            ({"embed_model_name": "hashing-0"}, InputError, "hashing-0"),
        ],
    )
    def test_wrong_options_are_told_before_anything_is_written(self, tmp_path, options, error, words):
        write(tmp_path / "docs", a_md="alpha")
        with pytest.raises(error, match=words) as caught:
            prepare_embeddings(tmp_path / "docs", tmp_path / "out" / ".." / "kb.duckdb", **{**HASHING, **options})
        assert "secret-key" not in str(caught.value)
        assert [path.name for path in tmp_path.iterdir()] == ["docs"]

    @pytest.mark.slow
    def test_dates_by_which_filters_do_not_compare_are_named(self, tmp_path):
        page = "---\ndate: '{}'\nversion: '1.10.2'\n---\nmango".format
        odd = {f"odd{number}_md": page(date) for number, date in enumerate(("3.2.2025", "2025/02/03", "Feb 3, 2025"))}
        write(tmp_path / "docs", a_md=page("2025-02-03"), b_md=page("2025-02-03T10:00"), c_md=page("soon"), **odd)
        report = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", **HASHING).report
        (warning,) = report.warnings
        assert warning == (
            "The metadata field 'date' of 3 documents is no ISO 8601 date, such as '3.2.2025' of odd0.md, "
            "and that of others is: filters by date leave these out. Write 2025-12-31."
        )
        write(tmp_path / "docs", d_md=page("Mon, 03 Feb 2025 10:00:00 +0100"), e_md=page("2025-02-03"))
        report = update_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb")
        (warning,) = report.warnings
        assert "'date' of 1 document is no ISO 8601 date, such as 'Mon, 03 Feb" in warning
        write(tmp_path / "of_one_kind", a_md=page("3.2.2025"))
        assert prepare_embeddings(tmp_path / "of_one_kind", tmp_path / "other.duckdb", **HASHING).report.warnings == []

    def test_wrong_folders(self, tmp_path):
        write(tmp_path / "docs", a_rst="x", b_md="x")
        out = tmp_path / "kb.duckdb"
        with pytest.raises(NotFoundError, match="missing"):
            prepare_embeddings(tmp_path / "missing", out, **HASHING)
        with pytest.raises(NotFoundError, match=r"name the folder .*docs, and '\*\.rst' as a pattern"):
            prepare_embeddings(tmp_path / "docs" / "*.rst", out, **HASHING)
        with pytest.raises(NotFoundError, match=r"name the folder .*docs, and '\*\.rst' as a pattern"):
            prepare_embeddings(tmp_path / "docs" / "**" / "*.rst", out, **HASHING)
        with pytest.raises(NotFoundError, match="missing"):  # whatever is at the output
            prepare_embeddings(tmp_path / "missing", tmp_path / "docs" / "b.md", **HASHING)
        with pytest.raises(InputError, match="is a file"):
            prepare_embeddings(tmp_path / "docs" / "b.md", out, **HASHING)
        (tmp_path / "empty").mkdir()
        with pytest.raises(NotFoundError, match="It is empty"):
            prepare_embeddings(tmp_path / "empty", out, **HASHING)
        with pytest.raises(StoreError, match="is a folder"):
            prepare_embeddings(tmp_path / "docs", tmp_path / "empty", **HASHING)
        with pytest.raises(StoreError, match="could not be"):
            prepare_embeddings(tmp_path / "docs", tmp_path / "docs" / "b.md" / "kb.duckdb", **HASHING)
        assert not out.exists()


class TestProvider:
    @pytest.mark.slow
    @pytest.mark.parametrize("batch", [1, 2048])
    @pytest.mark.parametrize("model", [Recorder(fails=lambda text: "poison" in text), NotANumber()])
    def test_case_F2_one_poisoned_text_fails_its_own_document_alone(self, tmp_path, monkeypatch, batch, model):
        # With a batch of one chunk every document stands alone, as a long one does.
        monkeypatch.setattr(run, "BATCH_CHUNKS", batch)
        write(tmp_path / "docs", a_md="alpha", b_md="# B\n\nbeta\n\n# C\n\npoison", c_md="gamma")
        prepared = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert [(f.doc_id, f.status) for f in prepared.report.failures] == [("b.md", "failed")]
        assert "could not be embedded" in prepared.report.failures[0].reason
        assert (prepared.report.documents, prepared.report.chunks) == (2, 2)
        assert rows(prepared.path, "SELECT doc_id FROM source_documents ORDER BY ALL") == [("a.md",), ("c.md",)]
        with Store(prepared.path, embedder=model) as store:
            assert store.check() == []
            assert ids(store.hybrid_query("gamma"))[0] == "c.md#0"

    @pytest.mark.parametrize("batch", [1, 2048])
    def test_a_provider_that_is_down_stops_the_run(self, tmp_path, monkeypatch, batch):
        monkeypatch.setattr(run, "BATCH_CHUNKS", batch)
        write(tmp_path / "docs", a_md="alpha", b_md="beta", c_md="gamma")
        calls = []
        for healthy in (0, 1, 2):  # calls that it answers before it goes down: none, the probe, the first batch
            calls.clear()
            model = Recorder(fails=lambda text, limit=healthy: calls.append(text) or len(calls) > limit)
            with pytest.raises(ProviderError, match="refuses"):
                prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off")
            made = ["docs", "kb.duckdb"] if (healthy, batch) == (2, 1) else ["docs"]
            assert sorted(path.name for path in tmp_path.iterdir()) == made


class TestReadingAhead:
    """Files are read and cut while those before them are embedded."""

    def test_files_are_read_while_the_model_works(self, tmp_path):
        last_is_read = threading.Event()

        class Waiting(Recorder):
            batch_size, is_python = 1, False

            def embed(self, texts, *, kind):
                if any("note" in text for text in texts) and not last_is_read.wait(60):
                    raise ProviderError("the last file is not read while the first is embedded")
                return super().embed(texts, kind=kind)

        def extractor(_):
            last_is_read.set()
            return ["the last file"]

        notes = {f"{number:02d}_md": f"note {number}" for number in range(40)}  # more than one batch of 16
        root = write(tmp_path / "in", **{**notes, "z_pdf": pdf("x")})
        report = prepare_embeddings(
            root, tmp_path / "kb.duckdb", verbose=False, embedder=Waiting(), pdf_extractor=extractor
        ).report
        assert (report.documents, report.failures) == (41, [])
        found = rows(tmp_path / "kb.duckdb", "SELECT node_id FROM documents ORDER BY rid")
        assert found == [*((f"{number:02d}.md#0",) for number in range(40)), ("z.pdf#0",)]

    def test_no_more_is_read_than_the_limit_says(self, tmp_path, monkeypatch):
        monkeypatch.setattr(run, "_AHEAD_BYTES", 250)
        root = write(tmp_path, **{**{f"{number}_md": "x" * 100 for number in range(9)}, "9_md": "x" * 1000})
        files, read = sorted(root.iterdir()), []
        with run._Ahead(files, lambda path: read.append(path) or path.name, lambda name: (name, [])) as ahead:
            for asked, path in enumerate(files, 1):
                assert ahead.document(path) == path.name
                ahead._pool.submit(int).result()  # the thread has done what it may
                assert asked <= len(read) <= asked + 2
                assert ahead.cut() == (path.name, [])
        assert read == files

    def test_it_ends_with_the_build(self, tmp_path):
        class Ended(Recorder):
            batch_size, is_python = 1, False

            def embed(self, texts, *, kind):
                if any("note" in text for text in texts):
                    raise KeyboardInterrupt
                return super().embed(texts, kind=kind)

        def extractor(_):
            while True:  # until it is cancelled
                pause(0.01)

        root = write(tmp_path / "in", **{f"{number:02d}_md": f"note {number}" for number in range(40)}, z_pdf=pdf("x"))
        with pytest.raises(KeyboardInterrupt):
            prepare_embeddings(root, tmp_path / "kb.duckdb", verbose=False, embedder=Ended(), pdf_extractor=extractor)
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("sqlrag-read")]

    def test_it_is_cancelled_with_the_work(self, tmp_path):
        work, model = Work(), Recorder()
        model.is_python = False

        def extractor(_):
            work.stop()
            while True:
                pause(0.01)

        root = write(tmp_path / "in", z_pdf=pdf("x"))
        with pytest.raises(Stopped), work.under_way():
            prepare_embeddings(root, tmp_path / "kb.duckdb", verbose=False, embedder=model, pdf_extractor=extractor)
        assert left_behind(tmp_path) == []


class TestLongDocuments:
    """A document with many chunks is embedded and written in parts."""

    LONG = (
        "# Long\n\n"
        + "".join(f"## Part {i}\n\nword{i} [a](b.md) <b>bold</b>\n\n" for i in range(40))
        + "<!-- end -->\n"
    )

    def build(self, tmp_path, monkeypatch, chunks, name, model=None):
        monkeypatch.setattr(run, "BATCH_CHUNKS", chunks)
        monkeypatch.setattr(run, "_PART_CHUNKS", chunks)
        out = tmp_path / f"{name}.duckdb"
        options = {"chunk_size": 12, "progress": "off", **({"embedder": model} if model else HASHING)}
        return prepare_embeddings(tmp_path / "docs", out, **options)

    @pytest.mark.slow
    def test_the_file_is_the_same(self, tmp_path, monkeypatch):
        write(tmp_path / "docs", a_md="alpha", b_md=self.LONG, c_txt=self.LONG, d_md="delta")
        whole, parts = (self.build(tmp_path, monkeypatch, *one) for one in ((2048, "whole"), (7, "parts")))
        assert whole.report.chunks > 80
        assert (whole.report.documents, whole.report.chunks) == (parts.report.documents, parts.report.chunks)
        for sql in (
            "FROM documents ORDER BY rid",
            "SELECT * EXCLUDE (created_at) FROM source_documents ORDER BY doc_id",
            "FROM document_links ORDER BY ALL",
            "FROM fts_main_documents.postings ORDER BY ALL",
        ):
            assert rows(whole.path, sql) == rows(parts.path, sql)
        with Store(parts.path, read_only=True) as store:
            assert store.check() == []

    def test_one_that_cannot_be_embedded_leaves_no_part(self, tmp_path, monkeypatch):
        write(tmp_path / "docs", a_md="alpha", b_md=self.LONG, d_md="delta")
        model = Recorder(fails=lambda text: "word30" in text)
        report = self.build(tmp_path, monkeypatch, 4, "kb", model).report
        assert [(f.doc_id, f.status) for f in report.failures] == [("b.md", "failed")]
        assert (report.documents, report.chunks) == (2, 2)
        found = rows(tmp_path / "kb.duckdb", "SELECT rid, doc_id FROM documents ORDER BY rid")
        assert found == [(0, "a.md"), (1, "d.md")]
        for table in ("document_links", "source_documents"):
            assert rows(tmp_path / "kb.duckdb", f"SELECT * FROM {table} WHERE doc_id = 'b.md'") == []

    def test_one_in_which_the_provider_goes_down_leaves_no_part(self, tmp_path, monkeypatch):
        write(tmp_path / "docs", a_md="alpha", b_md=self.LONG, d_md="delta")
        down = []
        model = Recorder(fails=lambda text: bool(down) or ("word30" in text and not down.append(text)))
        with pytest.raises(ProviderError, match="1 of 3 documents"):
            self.build(tmp_path, monkeypatch, 4, "kb", model)
        assert rows(tmp_path / "kb.duckdb", "SELECT doc_id FROM documents") == [("a.md",)]
        failed = rows(tmp_path / "kb.duckdb", "SELECT doc_id FROM ingest_failures ORDER BY doc_id")
        assert failed == [("b.md",), ("d.md",)]


def interrupt(monkeypatch, error):
    """Make the build fail after its rows are written."""

    def fail(*_):
        raise error

    monkeypatch.setattr(lexical, "add_chunks", fail)


class TestWholeOrNotAtAll:
    @pytest.mark.parametrize(
        ("error", "raised"),
        [
            (RuntimeError("boom"), RuntimeError),
            (KeyboardInterrupt(), KeyboardInterrupt),
            (OSError(28, "No space left"), StoreError),
        ],
    )
    def test_an_error_in_the_middle_leaves_nothing_but_what_was_embedded(self, tmp_path, monkeypatch, error, raised):
        with monkeypatch.context() as patch:
            interrupt(patch, error)
            with pytest.raises(raised):
                build(tmp_path, a_md="alpha")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "kb.duckdb.embedded"]
        build(tmp_path)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["docs", "kb.duckdb"]

    @pytest.mark.slow
    def test_an_error_in_the_middle_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = build(tmp_path, a_md="alpha")
        before = path.read_bytes()
        write(tmp_path / "docs", b_md="beta")
        with pytest.raises(StoreExistsError, match="overwrite=True"):
            build(tmp_path)
        with monkeypatch.context() as patch:
            interrupt(patch, RuntimeError("boom"))
            with pytest.raises(RuntimeError):
                build(tmp_path, options={"overwrite": True})
        assert path.read_bytes() == before
        assert left_behind(tmp_path) == []
        build(tmp_path, options={"overwrite": True})
        assert rows(path, "SELECT doc_id FROM source_documents ORDER BY ALL") == [("a.md",), ("b.md",)]

    def test_another_folder_for_a_file_that_is_there_is_told_how_to_be_added(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        docs, notes = tmp_path / "docs", write(tmp_path / "notes", n_md="note")
        with pytest.raises(StoreExistsError, match=r"brings it up to date\.$"):
            prepare_embeddings(docs, path, **HASHING)
        with pytest.raises(StoreExistsError) as refused:
            prepare_embeddings(notes, path, **HASHING)
        call = f"update_embeddings(input_dir={str(notes)!r}, db_path={str(path)!r}, collection='NAME')"
        told = f"It has {docs.resolve()} (collection default). To add this folder as a collection of its own: {call}."
        assert told in str(refused.value)
        command = f"sqlrag update '{notes}' --db '{path}' --collection NAME"
        assert with_commands(str(refused.value)).endswith(f": {command}.")

    def test_a_folder_for_a_file_of_rows_is_told_how_to_be_added(self, tmp_path):
        path, notes = tmp_path / "rows.duckdb", write(tmp_path / "notes", n_md="note")
        index_rows("SELECT 1 AS id, 'a' AS body", path, key="id", text="body", collection="t", **HASHING)
        with pytest.raises(StoreExistsError) as refused:
            prepare_embeddings(notes, path, **HASHING)
        told = (
            f"To add this folder as a collection of its own: sqlrag update '{notes}' --db '{path}' --collection NAME."
        )
        assert with_commands(str(refused.value)).endswith(told)
        update_embeddings(notes, path, collection="notes", verbose=False)
        assert rows(path, "SELECT collection FROM source_documents ORDER BY ALL") == [("notes",), ("t",)]

    def test_what_is_no_store_is_never_overwritten(self, tmp_path):
        write(tmp_path / "docs", a_md="alpha")
        note, foreign = tmp_path / "note.duckdb", tmp_path / "foreign.duckdb"
        note.write_text("my only copy")
        with duckdb.connect(str(foreign)) as con:
            con.execute("CREATE TABLE documents (i INTEGER)")
        for path in (note, foreign):
            before = path.read_bytes()
            with pytest.raises(NotAStoreError, match="not overwritten"):
                build(tmp_path, path.name, options={"overwrite": True})
            assert path.read_bytes() == before

    @pytest.mark.slow
    def test_an_empty_file_and_an_older_store_are_overwritten(self, tmp_path):
        (tmp_path / "kb.duckdb").touch()
        path = build(tmp_path, a_md="alpha", options={"overwrite": True})
        with duckdb.connect(str(path)) as con:
            con.execute("UPDATE embedding_metadata SET value = '0' WHERE key = 'schema_version'")
        build(tmp_path, options={"overwrite": True})
        assert metadata_of(path)["schema_version"] == "6"

    def test_a_store_that_is_open_is_not_replaced(self, tmp_path):
        path = build(tmp_path, a_md="alpha")
        with Store(path), pytest.raises(StoreLockedError, match="open in this process"):
            build(tmp_path, options={"overwrite": True})

    @pytest.mark.slow
    def test_a_killed_build_leaves_no_output_and_the_next_one_cleans_up(self, tmp_path):
        write(tmp_path / "docs", a_md="alpha", b_md="beta")
        code = (
            "import sys, time, sqlrag\n"
            "from sqlrag.engines.duckdb import lexical\n"
            "def wait(*_):\n    print('ready', flush=True)\n    time.sleep(60)\n"
            "lexical.add_chunks = wait\n"
            "sqlrag.prepare_embeddings(sys.argv[1], sys.argv[2], embedding_provider='hashing',\n"
            "    embed_model_name='hashing-64', progress='off')\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", code, tmp_path / "docs", tmp_path / "kb.duckdb"],
            env={**os.environ, "PYTHONPATH": str(ROOT)}, stdout=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout.readline() == b"ready\n"
            # What another build is busy with is left alone.
            other = build(tmp_path, "other.duckdb")
            assert left_behind(tmp_path)
            process.send_signal(signal.SIGKILL)
        assert not (tmp_path / "kb.duckdb").exists()
        assert left_behind(tmp_path)
        path = build(tmp_path)
        assert left_behind(tmp_path) == []
        assert rows(path, "SELECT doc_id FROM source_documents ORDER BY ALL") == [("a.md",), ("b.md",)]
        other.unlink()

    def test_left_overs_of_a_process_that_had_our_number(self, tmp_path):
        # In a container the process that was killed and the one that comes next often share a number.
        name = f".k[b].duckdb.{os.getpid()}.building"
        (tmp_path / name).write_text("half a file")
        (tmp_path / f"{name}.wal").touch()
        (tmp_path / f"{name}.tmp").mkdir()
        (tmp_path / f"{name}.tmp" / "spilled").touch()
        path = build(tmp_path, "k[b].duckdb", a_md="alpha")
        assert left_behind(tmp_path) == []
        assert ids(hybrid_query("alpha", path)) == ["a.md#0"]

    def test_a_folder_that_cannot_be_written(self, tmp_path):
        write(tmp_path / "docs", a_md="alpha")
        folder = tmp_path / "closed"
        folder.mkdir(mode=0o500)
        # /proc refuses even the superuser.
        output = (Path("/proc") if os.access(folder, os.W_OK) else folder) / "kb.duckdb"
        with pytest.raises(StoreError, match=r"could not be written.*None was made"):
            prepare_embeddings(tmp_path / "docs", output, **HASHING)
        assert not output.exists()


PAGES = {
    "a_md": "---\ntags: [x, y]\nkeys: !!set {b, a, c}\n---\n# A\n\nalpha beta\n\n## B\n\n" + "gamma delta " * 200,
    "sub__b_txt": "epsilon zeta",
    "sub__a_md": "# Ä\n\nzeta",
    "z__Z_md": "alpha",
    **{f"same{n}_md": "# Twin\n\ntwin" for n in (1, 2, 3)},
}  # fmt: skip
DUMP = (
    "SELECT node_id, text, metadata_, doc_id, collection, chunk_index, i_start, i_end, page, heading_path, tags, "
    "checksum, rid FROM documents"
)
BUILD = """
import json, sys, sqlrag
from pathlib import Path
options = json.loads(sys.argv[3])
path = sqlrag.prepare_embeddings(sys.argv[1], sys.argv[2], 64, progress="off", **options).path
found = {}
for threads in (1, 2):
    with sqlrag.Store(path, threads=threads) as store:
        found[threads] = [[dict(row) for row in search(q, top_k=20)]
            for q in ("alpha", "zeta", "twin", "gamma delta?")
            for search in (store.hybrid_query, store.vector_query, store.lexical_query)]
assert found[1] == found[2]
for row in sum(found[1], []):
    del row["created_at"]
print(json.dumps(found[1]))
"""


def check_determinism(tmp_path, options):
    outputs = []
    for n, seed in enumerate(("0", "4242")):
        home = tmp_path / f"place{n}" / ("deep" * n)
        write(home / "docs", **dict(sorted(PAGES.items(), reverse=bool(n))))
        folder = "docs" if n else home / "docs"  # relative once, absolute once
        outputs.append(
            json.loads(python(BUILD, folder, "kb.duckdb", json.dumps(options), cwd=home, PYTHONHASHSEED=seed))
        )
    first, second = (tmp_path / "place0" / "kb.duckdb", tmp_path / "place1" / "deep" / "kb.duckdb")
    assert rows(first, DUMP) == rows(second, DUMP)
    assert len(rows(first, DUMP)) > 7
    one, two = (np.array([v for (v,) in rows(path, "SELECT embedding FROM documents")]) for path in (first, second))
    assert np.abs(one - two).max() <= 1e-6
    assert outputs[0] == outputs[1]
    assert [row["node_id"] for row in outputs[0][7]][:3] == [f"same{n}.md#0" for n in (1, 2, 3)]


@pytest.mark.slow
def test_two_copies_of_a_folder_give_the_same_rows_and_results(tmp_path):
    check_determinism(tmp_path, {"embedding_provider": "hashing", "embed_model_name": "hashing-64"})


@pytest.mark.slow
class TestMiniLM:
    pytestmark = real_model

    def test_two_copies_of_a_folder_give_the_same_rows_and_results(self, tmp_path):
        check_determinism(tmp_path, {"embed_model_name": MINILM})

    def test_a_question_finds_its_page_by_meaning(self, tmp_path):
        write(
            tmp_path / "docs",
            cats_md="# Cats\n\nA kitten purrs on the sofa.",
            cars_md="# Cars\n\nThe engine of the truck needs oil.",
            bread_md="# Bread\n\nKnead the dough and let it rise.",
        )
        path = prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", 200, embed_model_name=MINILM, embed_dim=384, progress="off"
        ).path
        for question, page in {
            "young feline pet": "cats.md", "vehicle maintenance": "cars.md", "baking a loaf": "bread.md",
        }.items():  # fmt: skip
            results = hybrid_query(question, path, MINILM)
            assert results[0]["doc_id"] == page
            assert results[0]["vector_rank"] == 1
        found = metadata_of(path)
        assert (found["embedding_model"], found["embedding_dimensions"]) == (MINILM, "384")
        assert len(json.loads(found["fingerprint"])) == 384
        with Store(path) as store:
            assert store.check() == []
