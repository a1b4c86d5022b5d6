"""The providers that are servers, against a real one on this machine that goes wrong in every way that is known."""

from __future__ import annotations

import inspect
import itertools
import logging
import time
import traceback
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import duckdb
import numpy as np
import pytest

import sqlrag
from sqlrag import Store, embedders, hybrid_query, load_embedder, prepare_embeddings, reembed, update_embeddings
from sqlrag.embedders import (
    CallableEmbedder,
    HashingEmbedder,
    LlamaIndexEmbedder,
    as_embedder,
    check_identity,
    embed_texts,
    probe,
    remote,
    self_test,
)
from sqlrag.embedders.function import estimated_offsets, openai_offsets
from sqlrag.errors import InputError, ModelMismatchError, ModelUnavailableError, ProviderError, SqlragError
from sqlrag.ingest import run
from sqlrag.network import scrub
from tests.support.embedding_server import (
    KEY,
    EmbeddingServer,
    answers,
    at_most,
    changed,
    down_after,
    hangs,
    no_longer_than,
    poisoned,
    serving,
    wants,
)  # fmt: skip
from tests.support.handbook import HANDBOOK, blocks, run_shell
from tests.support.helpers import ids, write
from tests.support.loopback import CUTS, cutting

SERVICES = ["openai", "ollama"]


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Wait little between attempts, and take nothing from the environment."""
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.01)
    monkeypatch.setattr(remote, "LONGEST_WAIT", 0.02)
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OLLAMA_HOST", "OLLAMA_API_KEY"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def server():
    return EmbeddingServer()


@pytest.fixture
def address(server):
    with serving(server) as url:
        yield url


def connect(provider, address, **options):
    """Load a model of the server; what it asked for until then is forgotten."""
    url = f"{address}/v1" if provider == "openai" else address
    return load_embedder("test-model", provider=provider, base_url=url, **options)


def rows(path, statement):
    with duckdb.connect(str(path), read_only=True) as con:
        return con.execute(statement).fetchall()


def cosines(vectors, texts, dimensions=64):
    right = HashingEmbedder(f"hashing-{dimensions}").embed(texts, kind="document")
    return np.sum(vectors * right, axis=1)


TEXTS = [f"{'word ' * (30 - number)}n{number}" for number in range(25)]  # the last is sent first


@pytest.mark.parametrize("provider", SERVICES)
class TestOneServer:
    def test_vectors_are_those_of_the_texts_in_order(self, server, address, provider):
        model = connect(provider, address)
        vectors = embed_texts(model, TEXTS, kind="document", batch_size=4)
        assert cosines(vectors, TEXTS) == pytest.approx(1, abs=1e-6)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-6)
        assert (model.provider, model.model_name, model.dimensions) == (provider, "test-model", 64)

    def test_case_C10_texts_are_sent_as_strings(self, server, address, provider):
        embed_texts(connect(provider, address), ["beta", "alpha"], kind="query")
        assert server.requests[-1]["input"] == ["beta", "alpha"]
        assert server.requests[-1].get("encoding_format") == ("float" if provider == "openai" else None)

    def test_dimensions_are_asked_for(self, server, address, provider):
        model = connect(provider, address, dimensions=16)
        assert embed_texts(model, ["alpha"], kind="document").shape == (1, 16)
        assert server.requests[-1]["dimensions"] == 16
        assert model.options["dimensions"] == 16

    def test_case_C3_a_wrong_answer_is_refused_with_the_position_in_the_callers_list(self, server, address, provider):
        model = connect(provider, address, batch_size=4)
        wrong = {
            r"expected 4 vectors, got 3": lambda vectors: vectors[:3],
            r"got 0 values for the text at position 24": lambda vectors: [[], *vectors[1:]],
            r"got 5 values for the text at position 22": lambda vectors: [*vectors[:2], [1.0] * 5, *vectors[3:]],
            r"got NaN or infinity for the text at position 21": lambda v: [*v[:3], [float("nan")] * 64],
            r"a vector of zeros for the text at position 24": lambda vectors: [[0.0] * 64, *vectors[1:]],
        }
        for message, change in wrong.items():
            server.faults = [changed(change)]
            with pytest.raises(ProviderError, match=rf"'test-model'.*{message}"):
                embed_texts(model, TEXTS, kind="document")
            assert len(server.requests) < 30, "a wrong answer is not asked for again"

    def test_case_C4_what_is_refused_for_its_size_is_sent_in_halves(self, server, address, provider, tmp_path):
        write(tmp_path / "docs", **{f"d{number:02}_md": text for number, text in enumerate(TEXTS)})
        model = connect(provider, address, batch_size=64)
        server.faults, server.requests = [at_most(10)], []
        path = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off").path
        # The self-test of ollama and the probe, then: 25 and 13 are too many, 7 pass, so no more than 7 are sent again.
        sizes = server.sizes[-6:]
        assert sizes == [25, 13, 7, 6, 7, 5]
        stored = rows(path, "SELECT text, embedding FROM documents ORDER BY doc_id")
        assert [text for text, _ in stored] == TEXTS
        named = [f"d{number:02}\n\n{text}" for number, text in enumerate(TEXTS)]  # a page's name is its heading
        assert cosines(np.array([vector for _, vector in stored]), named) == pytest.approx(1, abs=1e-5)

    @pytest.mark.parametrize("status", [400, 413, 422, 500])
    def test_case_C5_a_text_that_is_too_long_is_cut_with_a_warning(self, server, address, provider, status, tmp_path):
        long = "${{ a }}: " * 400
        write(tmp_path / "docs", a_md="alpha", long_md=long, z_md="omega")
        model = connect(provider, address, max_tokens=8000)
        server.faults, server.requests = [no_longer_than(2000, status)], []
        built = prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, chunk_size=8000, progress="off",
            include_headers_in_chunks=False,
        )  # fmt: skip
        sent = [text for text in server.inputs if text.startswith("$")]
        # 4,000 characters with others, alone, and the half of it; a request is never repeated.
        assert sorted({len(text) for text in sent}) == [1999, 3999]
        bodies = [tuple(body["input"]) for body in server.requests if any(t.startswith("$") for t in body["input"])]
        assert len(bodies) == len(set(bodies))
        assert [w for w in built.report.warnings if "long.md#0" in w and "first 1999 of 3999" in w]
        flags = rows(
            built.path, "SELECT doc_id, json_extract_string(metadata_, '$.truncated') FROM documents ORDER BY doc_id"
        )
        assert flags == [("a.md", None), ("long.md", "true"), ("z.md", None)]
        assert built.report.failures == []

    def test_case_C5_a_text_that_is_refused_at_any_length_fails_alone(self, server, address, provider, tmp_path):
        write(tmp_path / "docs", a_md="alpha", b_md="poison " * 100, z_md="omega")
        model = connect(provider, address)
        server.requests = []
        server.faults = [poisoned("poison", 413)]
        built = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert [failure.doc_id for failure in built.report.failures] == ["b.md"]
        assert len(server.requests) < 40
        assert ids(hybrid_query("omega", built.path))[0] == "z.md#0"

    def test_a_query_that_is_too_long_is_cut_with_a_warning(self, server, address, provider):
        model = connect(provider, address)
        server.faults = [no_longer_than(40)]
        with pytest.warns(UserWarning, match="no more than the first 30 characters of the text at position 0"):
            vectors = embed_texts(model, ["duck " * 12], kind="query")
        assert cosines(vectors, ["duck"]) == pytest.approx(1, abs=1e-6)

    @pytest.mark.alone
    def test_case_C9_what_passes_later_is_asked_for_again(self, server, address, provider):
        model = connect(provider, address)
        server.requests = []
        server.faults = [answers(429, Retry_After="1"), answers(200, 500, 503)]
        began = time.monotonic()
        vectors = embed_texts(model, ["alpha"], kind="document")
        assert 1 <= time.monotonic() - began < 3
        assert len(server.requests) == 4
        assert cosines(vectors, ["alpha"]) == pytest.approx(1)

    @pytest.mark.alone
    def test_retry_after_may_be_a_date(self, server, address, provider):
        model = connect(provider, address)
        server.requests = []
        soon = datetime.now(UTC) + timedelta(seconds=2)
        server.faults = [answers(503, Retry_After=format_datetime(soon, usegmt=True))]
        embed_texts(model, ["alpha"], kind="document")
        # The date has whole seconds; a clock and a timer may differ by some milliseconds.
        late = (datetime.now(UTC) - soon.replace(microsecond=0)).total_seconds()
        assert -0.1 < late < 3

    @pytest.mark.alone
    def test_a_retry_after_beyond_the_limit_is_not_waited_for(self, server, address, provider, monkeypatch):
        model = connect(provider, address)
        server.requests = []
        server.faults = [answers(*[429] * 9, Retry_After="3600")]
        began = time.monotonic()
        with pytest.raises(ProviderError, match=r"HTTP 429.*after 1 attempts"):
            embed_texts(model, ["alpha"], kind="document")
        assert time.monotonic() - began < 2

    def test_attempts_end(self, server, address, provider):
        model = connect(provider, address)
        server.requests = []
        server.faults = [answers(*[500] * 99)]
        with pytest.raises(ProviderError, match=r"HTTP 500.*Gave up after 6 attempts") as caught:
            embed_texts(model, ["alpha"], kind="document")
        assert len(server.requests) == 6
        assert f"at {model.base_url}" in str(caught.value)
        with pytest.raises(ProviderError, match="after 3 attempts"):
            embed_texts(model, ["alpha"], kind="query")

    @pytest.mark.alone
    def test_a_server_that_hangs_is_left_in_time(self, server, address, provider):
        model = connect(provider, address, timeout=0.4)
        server.faults = [hangs(5)]
        began = time.monotonic()
        with pytest.raises(ProviderError, match=r"does not answer.*timed out"):
            embed_texts(model, ["alpha"], kind="query")
        assert time.monotonic() - began < 4  # the server sleeps for 5 seconds

    @pytest.mark.parametrize("cut", CUTS)
    def test_fault_S28_an_answer_that_is_cut_came_from_a_server_that_was_reached(self, provider, cut):
        told = "closed the connection before the end of its answer"
        with cutting(CUTS[cut]) as broken, pytest.raises(ProviderError, match=told) as caught:
            connect(provider, broken, timeout=5)
        assert "does not answer" not in str(caught.value)

    @pytest.mark.alone
    def test_a_server_that_is_not_there(self, address, provider):
        began = time.monotonic()
        with pytest.raises(ProviderError, match=r"'test-model' at http://127.0.0.1:9.* does not answer"):
            connect(provider, "http://127.0.0.1:9", timeout=5)
        assert time.monotonic() - began < 1

    def test_a_wrong_key_is_said_at_once_and_never_shown(self, server, address, provider, caplog):
        caplog.set_level(logging.DEBUG)
        model = connect(provider, address, api_key=KEY)
        server.faults, server.requests = [wants(server, "another")], []
        variable = f"{provider.upper()}_API_KEY"
        with pytest.raises(ProviderError, match=f"HTTP 401.*{variable}") as caught:
            embed_texts(model, ["alpha"], kind="document")
        assert len(server.requests) == 1
        shown = "".join(traceback.format_exception(caught.value))
        assert KEY not in shown
        assert "Incorrect API key provided" in shown
        assert KEY not in caplog.text
        assert KEY not in repr(model) + repr(vars(model)).replace(repr(model._key), "")

    @pytest.mark.slow
    def test_case_L4_the_key_is_sent_and_not_stored(self, server, address, provider, tmp_path, monkeypatch):
        server.faults = [wants(server, KEY)]
        write(tmp_path / "docs", a_md="alpha", b_md="beta")
        url = f"{address}/v1" if provider == "openai" else address
        built = prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", embed_model_name="test-model", embedding_provider=provider,
            api_key=KEY, base_url=url, progress="off",
        )  # fmt: skip
        assert built.report.failures == []
        content = built.path.read_bytes()
        assert KEY.encode() not in content
        assert address.encode() in content, "or the search for the key proves nothing"
        assert KEY not in repr(built) + str(built.report)
        # The file names provider, model and server; the key comes from the environment.
        monkeypatch.setenv(f"{provider.upper()}_API_KEY", KEY)
        results = hybrid_query("beta", built.path)
        assert (ids(results)[0], results.notices) == ("b.md#0", [])
        with Store(built.path) as store:
            assert store.check() == []

    def test_another_model_behind_the_same_name_is_refused(self, server, address, provider, tmp_path):
        write(tmp_path / "docs", a_md="alpha")
        model = connect(provider, address)
        path = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off").path
        server.faults = [changed(lambda vectors: np.roll(vectors, 1, axis=1).tolist())]
        with (
            Store(path, embedder=model) as store,
            pytest.raises(ModelMismatchError, match=r"'test-model'.*'test-model'.*cosine.*reembed"),
        ):
            store.vector_query("alpha")
        write(tmp_path / "docs", b_md="beta")
        with pytest.raises(ModelMismatchError, match="reembed"):
            update_embeddings(tmp_path / "docs", path, embedder=model, progress="off")

    def test_the_same_model_from_another_provider_passes(self, server, address, provider, tmp_path):
        write(tmp_path / "docs", a_md="alpha", b_md="beta")
        options = {"embedding_provider": "hashing", "embed_model_name": "hashing-64", "progress": "off"}
        path = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", **options).path
        with Store(path, embedder=connect(provider, address)) as store:
            assert ids(store.vector_query("beta"))[0] == "b.md#0"

    @pytest.mark.rest
    def test_case_F3_another_length_names_both(self, server, address, provider, tmp_path):
        write(tmp_path / "docs", a_md="alpha")
        options = {"embedding_provider": "hashing", "embed_model_name": "hashing-32", "progress": "off"}
        path = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", **options).path
        with pytest.raises(ModelMismatchError, match=r"'hashing-32' \(hashing, 32 .*'test-model' \(.*, 64 .*reembed"):
            update_embeddings(tmp_path / "docs", path, embedder=connect(provider, address), progress="off")
        assert reembed(path, embedder=connect(provider, address), progress="off").dimensions == 64
        assert ids(hybrid_query("alpha", path)) == ["a.md#0"]


class TestUnfinished:
    """C9: what becomes of a run whose provider stops answering."""

    @pytest.fixture
    def docs(self, tmp_path):
        # One chunk each; in the order of their lengths, in which they are sent.
        return write(tmp_path / "docs", **{f"d{n:02}_md": f"{'w' * n} number{n}" for n in range(25)})

    @pytest.mark.slow
    def test_case_C9_finished_documents_stay_and_a_rerun_embeds_the_rest(self, server, address, docs, tmp_path):
        model = connect("openai", address, batch_size=5)
        server.requests = []
        server.faults = [down_after(3)]  # the probe and two of five batches
        path = tmp_path / "kb.duckdb"
        with pytest.raises(ProviderError, match=r"HTTP 503.*10 of 25 documents are in .*update_embeddings"):
            prepare_embeddings(docs, path, embedder=model, progress="off")
        assert [p.name for p in tmp_path.iterdir() if "building" in p.name] == []
        stored = rows(path, "SELECT doc_id FROM source_documents ORDER BY ALL")
        assert stored == [(f"d{n:02}.md",) for n in range(10)]
        with duckdb.connect(str(path)) as con:
            failures = con.execute("SELECT doc_id, reason FROM ingest_failures ORDER BY ALL").fetchall()
        assert [doc_id for doc_id, _ in failures] == [f"d{n:02}.md" for n in range(10, 25)]
        assert "stopped answering" in failures[0][1]

        server.faults, server.requests = [], []
        report = update_embeddings(docs, path, embedder=model, progress="off")
        assert (report.embedded, len(report.unchanged), report.failures) == (15, 10, [])
        asked = [text for text in server.inputs if "number" in text]
        assert sorted(asked) == sorted(f"d{n:02}\n\n{'w' * n} number{n}" for n in range(10, 25))
        with Store(path) as store:
            assert store.check() == []
            assert rows(path, "FROM ingest_failures") == []
            assert len(store.vector_query("number3", top_k=50)) == 25

    @pytest.mark.slow
    def test_an_update_keeps_what_is_finished(self, server, address, docs, tmp_path):
        model = connect("openai", address, batch_size=5)
        path = prepare_embeddings(
            docs, tmp_path / "kb.duckdb", embedder=model, progress="off", patterns=["d00.md"]
        ).path
        server.requests = []
        server.faults = [down_after(2)]  # the check of the model, one of five batches
        with pytest.raises(ProviderError, match="What was finished stays; the next update does the rest"):
            update_embeddings(docs, path, embedder=model, progress="off")
        assert rows(path, "SELECT count(*) FROM source_documents") == [(6,)]
        server.faults = []
        assert update_embeddings(docs, path, embedder=model, progress="off").embedded == 19

    def test_no_half_documents(self, server, address, tmp_path):
        # Each document has a short and a long chunk, so that the short ones are embedded first.
        files = {f"d{n}_md": f"# A\n\nshort{n}\n\n# B\n\n{'long ' * 20}{n}" for n in range(6)}
        docs = write(tmp_path / "docs", **files)
        model = connect("openai", address, batch_size=3)
        server.requests = []
        server.faults = [down_after(4)]  # the probe, all short chunks, three of the long ones
        with pytest.raises(ProviderError, match="3 of 6 documents"):
            prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert rows(tmp_path / "kb.duckdb", "SELECT doc_id, count(*) FROM documents GROUP BY ALL ORDER BY ALL") == [
            ("d0.md", 2), ("d1.md", 2), ("d2.md", 2)
        ]  # fmt: skip

    @pytest.mark.slow
    def test_a_file_that_was_to_be_replaced_stays(self, server, address, docs, tmp_path):
        model = connect("openai", address, batch_size=5)
        path = prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=model, progress="off").path
        server.requests = []
        server.faults = [down_after(3)]
        with pytest.raises(ProviderError, match="is as it was"):
            prepare_embeddings(docs, path, embedder=model, progress="off", overwrite=True)
        assert rows(path, "SELECT count(*) FROM source_documents") == [(25,)]

    def test_nothing_is_made_where_nothing_was_finished(self, server, address, docs, tmp_path):
        model = connect("openai", address)
        server.requests = []
        server.faults = [down_after(1)]
        with pytest.raises(ProviderError, match="No document was finished, so no file was made"):
            prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert [p.name for p in tmp_path.iterdir()] == ["docs"]

    @pytest.mark.parametrize("status", [400, 500])
    def test_a_poisoned_text_fails_only_its_own_document(self, server, address, docs, tmp_path, status):
        write(docs, poison_md="# One\n\nfine\n\n# Two\n\npoison")
        model = connect("openai", address, batch_size=5)
        server.requests = []
        server.faults = [poisoned("poison", status)]
        built = prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert [failure.doc_id for failure in built.report.failures] == ["poison.md"]
        assert built.report.documents == 25
        # What was embedded before the failure is not sent again.
        alone = [text for text in server.inputs if text.endswith("number0")]
        assert len(alone) == 1

    @pytest.mark.parametrize("provider", SERVICES)
    def test_case_F2_a_nan_fails_only_its_own_document(self, server, address, docs, tmp_path, provider):
        def spoil(texts, _):
            where = [place for place, text in enumerate(texts) if "number7" in text]
            return lambda vectors: [[float("nan")] * 64 if n in where else v for n, v in enumerate(vectors)]

        model = connect(provider, address)
        server.faults = [spoil]
        built = prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert [(f.doc_id, "NaN" in f.reason) for f in built.report.failures] == [("d07.md", True)]
        with Store(built.path, embedder=model) as store:
            assert len(store.vector_query("number3", top_k=50)) == 24


class TestOpenAI:
    def test_fault_S23_wrong_numbers_are_told_of_once(self, server, address, tmp_path, monkeypatch):
        monkeypatch.setattr(run, "BATCH_CHUNKS", 10)
        docs = write(tmp_path / "docs", **{f"d{n:02}_md": f"{'w' * n} number{n}" for n in range(25)})
        server.index = lambda places: [0] * len(places)
        model = connect("openai", address)
        built = prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert (built.report.documents, built.report.failures) == (25, [])
        (note,) = built.report.warnings
        assert "one by one, in many more requests" in note
        assert "the answer has the index 0 more than once" in note
        assert "many more requests" in str(built.report)
        with Store(built.path, embedder=model) as store:
            vectors = store.vectors([f"d{n:02}.md#0" for n in range(25)])
        texts = [f"d{n:02}\n\n{'w' * n}{' ' * (n > 0)}number{n}" for n in range(25)]
        assert cosines(vectors, texts) == pytest.approx(1, abs=1e-6)

    def test_fault_S23_no_note_where_a_document_is_at_fault(self, server, address, tmp_path):
        docs = write(tmp_path / "docs", a_md="fine", b_md="poison", c_md="fine too")
        server.faults = [poisoned("poison", 400)]
        built = prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=connect("openai", address), progress="off")
        assert ([failure.doc_id for failure in built.report.failures], built.report.warnings) == (["b.md"], [])

    @pytest.mark.parametrize("shuffle", [lambda places: places[::-1], lambda places: places[1:] + places[:1]])
    def test_vectors_are_placed_by_their_index(self, server, address, shuffle):
        model = connect("openai", address)
        server.index = shuffle
        assert cosines(embed_texts(model, TEXTS, kind="document"), TEXTS) == pytest.approx(1, abs=1e-6)

    def test_a_missing_index_is_an_error(self, server, address):
        model = connect("openai", address)
        server.index = lambda places: [*places[:-1], places[0]]
        with pytest.raises(ProviderError, match="index 0 more than once"):
            embed_texts(model, ["a", "b", "c"], kind="document")

    def test_an_index_beyond_the_texts_is_an_error(self, server, address, monkeypatch):
        model = connect("openai", address)
        monkeypatch.setattr(model._client, "with_options", lambda **_: model._client)
        monkeypatch.setattr(
            model._client, "post",
            lambda *_, **__: {"data": [{"index": place, "embedding": [1.0] * 64} for place in (0, 2)]},
        )  # fmt: skip
        with pytest.raises(ProviderError, match="got nothing for the text at position 1"):
            embed_texts(model, ["a", "b"], kind="document")

    def test_case_C10_floats_are_not_asked_for_where_the_server_does_not_know_them(self, server, address):
        server.float_encoding = False
        model = connect("openai", address)
        server.requests = []
        embed_texts(model, ["alpha"], kind="document")
        assert [set(body) for body in server.requests] == [{"model", "input"}]

    def test_an_answer_of_another_kind_is_refused(self, server, address):
        from tests.support.embedding_server import Answer

        def fault(*_):
            raise Answer(200, "[1, 2, 3]")

        model = connect("openai", address)
        server.faults = [fault]
        with pytest.raises(ProviderError, match="has no list of vectors"):
            embed_texts(model, ["alpha"], kind="document")

    def test_a_request_holds_no_more_bytes_than_the_service_takes(self, server, address):
        model = connect("openai", address)
        server.requests = []
        embed_texts(model, ["ä" * 50_000 + str(n) for n in range(5)], kind="document")
        # 100,001 bytes each: two in 300,000
        assert server.sizes == [2, 2, 1]

    def test_an_exhausted_account_is_not_asked_again(self, server, address):
        from tests.support.embedding_server import Answer

        def fault(*_):
            raise Answer(429, {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}})

        model = connect("openai", address)
        server.faults, server.requests = [fault], []
        with pytest.raises(ProviderError, match="quota"):
            embed_texts(model, ["alpha"], kind="document")
        assert len(server.requests) == 1

    def test_openai_itself_needs_a_key(self):
        with pytest.raises(ModelUnavailableError, match="OPENAI_API_KEY"):
            load_embedder("text-embedding-3-small", provider="openai")

    def test_models_of_openai_are_known_without_a_request(self):
        model = load_embedder(provider="openai", api_key=KEY)
        assert (model.model_name, model.dimensions, model.max_tokens) == ("text-embedding-3-small", 1536, 8191)
        assert model.options == {}
        assert load_embedder("text-embedding-3-large", provider="openai", api_key=KEY, dimensions=256).dimensions == 256

    @pytest.mark.slow
    def test_the_key_of_the_environment_is_not_sent_to_a_server_that_only_a_file_names(
        self, server, address, tmp_path, monkeypatch
    ):
        write(tmp_path / "docs", a_md="alpha")
        path = prepare_embeddings(
            tmp_path / "docs", tmp_path / "kb.duckdb", embedder=connect("openai", address), progress="off"
        ).path
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        monkeypatch.setattr(remote, "is_this_machine", lambda url: False)  # as if it were somebody else's
        hybrid_query("alpha", path)
        assert {headers["authorization"] for headers in server.headers} == {"Bearer none"}
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1/")
        hybrid_query("alpha", path)
        assert server.headers[-1]["authorization"] == f"Bearer {KEY}"

    def test_the_environment_names_the_server(self, server, address, monkeypatch):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert load_embedder("test-model", provider="openai").dimensions == 64
        assert server.headers[-1]["authorization"] == f"Bearer {KEY}"

    @pytest.mark.parametrize(
        "options",
        [
            {"base_url": "http://user:secret@localhost/v1"},
            {"base_url": "http://localhost/v1?key=secret"},
            {"base_url": "localhost:8000/v1"},
            {"base_url": "http://localhost:port/v1"},
            {"api_key": "secret key"},
            {"api_key": "secret\u00e9"},
            {"timeout": 0},
            {"dimensions": 0},
            {"batch_size": 0},
            {"max_tokens": 1.5},
        ],
    )
    def test_wrong_options_are_refused_and_no_secret_is_repeated(self, options):
        with pytest.raises(InputError) as caught:
            load_embedder("test-model", provider="openai", **{"base_url": "http://127.0.0.1:9/v1", **options})
        assert "secret" not in str(caught.value)

    def test_a_provider_on_this_machine_takes_no_key(self, tmp_path):
        write(tmp_path / "docs", a_md="alpha")
        with pytest.raises(InputError, match=r"'hashing'.*api_key"):
            prepare_embeddings(
                tmp_path / "docs", tmp_path / "kb.duckdb", embedding_provider="hashing", api_key=KEY, progress="off"
            )
        with pytest.raises(InputError, match="cannot be combined with an embedder"):
            prepare_embeddings(
                tmp_path / "docs", tmp_path / "kb.duckdb", embedder=HashingEmbedder(), api_key=KEY, progress="off"
            )


class TestOllama:
    def test_case_C11_batches_are_small_and_compared_with_single_texts(self, server, address, tmp_path):
        model = connect("ollama", address)
        server.requests = []
        assert self_test(model) == pytest.approx(1, abs=1e-6)
        assert server.sizes == [8, 1, 1]
        write(tmp_path / "docs", **{f"d{n:02}_md": f"number {n}" for n in range(20)})
        prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert max(server.sizes) <= 8

    def test_case_C11_vectors_that_get_worse_in_a_batch_stop_the_build(self, server, address, tmp_path):
        def worse(texts, _):
            return lambda vectors: (np.array(vectors) + (0.05 if len(texts) > 1 else 0)).tolist()

        model = connect("ollama", address)
        server.faults = [worse]
        write(tmp_path / "docs", a_md="alpha")
        with pytest.raises(ProviderError, match=r"another vector in a batch of 8 than alone: cosine 0.*batch_size=1"):
            prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off")
        assert [p.name for p in tmp_path.iterdir()] == ["docs"]

    def test_case_C5_the_server_is_asked_not_to_cut(self, server, address):
        embed_texts(connect("ollama", address), ["alpha"], kind="document")
        assert {body["truncate"] for body in server.requests} == {False}

    def test_case_C6_the_window_is_what_the_server_says(self, server, address):
        server.shown = {"model_info": {"bert.context_length": 2048}, "parameters": "num_ctx    1024\nstop  x"}
        model = connect("ollama", address)
        assert (model.max_tokens, model.revision) == (1024, "ab" * 32)
        assert connect("ollama", address, max_tokens=300).max_tokens == 300

    def test_case_C6_chunks_are_no_larger_than_the_window(self, server, address, tmp_path):
        server.shown = {"model_info": {"bert.context_length": 100}}
        write(tmp_path / "docs", a_md="some words " * 300)
        with pytest.warns(UserWarning, match="lowered to 100 tokens"):
            built = prepare_embeddings(
                tmp_path / "docs", tmp_path / "kb.duckdb", 200, embedder=connect("ollama", address), progress="off"
            )
        texts = [text for (text,) in rows(built.path, "SELECT text FROM documents")]
        assert max(len(estimated_offsets(text)) for text in texts) <= 100
        assert len(texts) > 5

    def test_a_model_that_is_not_there_says_how_to_fetch_it(self, server, address):
        server.shown = {"missing": True}
        with pytest.raises(ModelUnavailableError, match="ollama pull test-model"):
            connect("ollama", address)

    @pytest.mark.parametrize(
        ("host", "url"),
        [
            ("", "http://127.0.0.1:11434"),
            ("0.0.0.0", "http://127.0.0.1:11434"),
            ("gpu", "http://gpu:11434"),
            (":8080", "http://127.0.0.1:8080"),
            ("https://gpu:1/", "https://gpu:1"),
        ],
    )
    def test_the_environment_names_the_server(self, host, url, monkeypatch):
        from sqlrag.embedders import ollama

        monkeypatch.setenv("OLLAMA_HOST", host)
        monkeypatch.setattr(ollama.OllamaEmbedder, "_describe", lambda *_: None)
        monkeypatch.setattr(ollama.OllamaEmbedder, "_measure", lambda *_: None)
        assert ollama.OllamaEmbedder("m").base_url == url

    @pytest.mark.slow
    def test_another_model_leaves_nothing_of_the_server_in_the_file(self, server, address, tmp_path):
        write(tmp_path / "docs", a_md="alpha", b_md="beta")
        model = connect("ollama", address, dimensions=32)
        path = prepare_embeddings(tmp_path / "docs", tmp_path / "kb.duckdb", embedder=model, progress="off").path
        kept = (
            "SELECT value FROM embedding_metadata WHERE key IN ('embedding_options', 'embedding_revision') ORDER BY 1"
        )
        assert rows(path, kept) == [("ab" * 32,), (f'{{"base_url": "{address}", "dimensions": 32}}',)]
        assert ids(hybrid_query("beta", path))[0] == "b.md#0"
        reembed(path, "hashing-64", provider="hashing", progress="off")
        assert rows(path, kept) == [("",), ("{}",)]
        assert ids(hybrid_query("beta", path))[0] == "b.md#0"


class TestObstacles:
    def test_what_keeps_a_provider_from_being_used(self, server, address, monkeypatch):
        assert "OPENAI_API_KEY" in embedders.OpenAIEmbedder.obstacle()
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        assert embedders.OpenAIEmbedder.obstacle() is None
        monkeypatch.setenv("OLLAMA_HOST", "http://bob:s3cretpw@127.0.0.1:9")
        assert "s3cretpw" not in str(sqlrag.models())
        monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9")
        assert "http://127.0.0.1:9 does not answer" in embedders.OllamaEmbedder.obstacle()
        monkeypatch.setenv("OLLAMA_HOST", address)
        assert embedders.OllamaEmbedder.obstacle() is None
        assert embedders.OllamaEmbedder.ready_models() == ["all-minilm:latest", "nomic-embed-text:latest"]
        for name, cls in (("openai", embedders.OpenAIEmbedder), ("ollama", embedders.OllamaEmbedder)):
            monkeypatch.setattr(f"sqlrag.embedders.{name}.find_spec", lambda _: None)
            assert f"sqlrag-duckdb[{name}]" in cls.obstacle()


class TestObjects:
    """What is passed as an embedder."""

    def docs(self, tmp_path):
        return write(tmp_path / "docs", a_md="alpha", b_md="beta", c_md="gamma")

    @pytest.mark.rest
    def test_a_function(self, tmp_path):
        model = HashingEmbedder("hashing-64")

        def hashed(texts):
            assert isinstance(texts, list)
            return model.embed(texts, kind="document").tolist()

        docs = self.docs(tmp_path)
        path = prepare_embeddings(docs, tmp_path / "kb.duckdb", embedder=hashed, progress="off").path
        assert sqlrag.get_embedding_metadata(path)["embedding"]["provider"] == "callable"
        with Store(path, embedder=CallableEmbedder(hashed)) as store:
            assert ids(store.vector_query("beta"))[0] == "b.md#0"
        with Store(path) as store, pytest.raises(ModelUnavailableError, match=r"hashed.*passed as an embedder"):
            store.vector_query("beta")
        write(docs, d_md="delta")
        assert update_embeddings(docs, path, embedder=hashed, progress="off").added == ["d.md"]
        reembed(path, embedder=lambda texts: HashingEmbedder("hashing-32").embed(texts, kind="query"), progress="off")
        assert sqlrag.get_embedding_metadata(path)["embedding"]["dimensions"] == 32

    def test_a_llama_index_object(self, tmp_path):
        from llama_index.core.base.embeddings.base import BaseEmbedding

        class Hashed(BaseEmbedding):
            asked: list = []

            def _get_text_embedding(self, text):
                return HashingEmbedder("hashing-64").embed([text], kind="document")[0].tolist()

            def _get_query_embedding(self, query):
                self.asked.append(query)
                return self._get_text_embedding(query)

            async def _aget_query_embedding(self, query):
                return self._get_query_embedding(query)

        mine = Hashed(model_name="mine", embed_batch_size=2)
        model = as_embedder(mine)
        assert isinstance(model, LlamaIndexEmbedder)
        assert (model.provider, model.model_name, model.dimensions, model.batch_size) == ("llama_index", "mine", 64, 2)
        assert LlamaIndexEmbedder(Hashed()).model_name == "base_component"
        path = prepare_embeddings(self.docs(tmp_path), tmp_path / "kb.duckdb", embedder=mine, progress="off").path
        assert mine.asked == []
        with Store(path, embedder=model) as store:
            assert ids(store.vector_query("beta"))[0] == "b.md#0"
        assert mine.asked == ["beta"]
        check_identity(HashingEmbedder("hashing-64"), probe(model))

    def test_a_secret_in_somebody_elses_error_is_not_shown(self):
        def fails(texts):
            if texts == ["x"]:
                raise ValueError(f"401 for api_key={KEY}")
            return [[1.0, 0.0]] * len(texts)

        with pytest.raises(ProviderError, match=r"api_key=\*\*\*") as caught:
            embed_texts(as_embedder(fails), ["x"], kind="document")
        assert KEY not in "".join(traceback.format_exception(caught.value))

    @pytest.mark.parametrize("wrong", [42, HashingEmbedder, "model", object()])
    def test_anything_else_is_refused(self, wrong):
        with pytest.raises(InputError, match="embedder must be an Embedder, a llama-index BaseEmbedding or a function"):
            as_embedder(wrong)

    def test_an_object_that_is_nearly_an_embedder_is_told_what_it_lacks(self):
        class Nearly(HashingEmbedder):
            token_offsets = property(doc="none")

        with pytest.raises(InputError, match="lacks token_offsets"):
            as_embedder(Nearly())

    @pytest.mark.parametrize("answer", [[], [[1.0], [2.0]], None, [3]])
    def test_a_function_that_is_no_model(self, answer):
        with pytest.raises(ProviderError):
            as_embedder(lambda texts: answer)

    def test_case_C4_halving_works_for_functions_too(self):
        sizes = []

        def few(texts):
            sizes.append(len(texts))
            if len(texts) > 3:
                raise ValueError("at most 3 texts, please")
            return HashingEmbedder("hashing-64").embed(texts, kind="document")

        vectors = embed_texts(as_embedder(few), TEXTS, kind="document")
        assert cosines(vectors, TEXTS) == pytest.approx(1, abs=1e-6)
        assert (sizes[:6], max(sizes[5:])) == ([1, 25, 13, 7, 4, 2], 2)


class TestLengths:
    """Every query function works on a file of any dimensions, from a server as from this machine."""

    @pytest.mark.rest
    @pytest.mark.parametrize("dimensions", [384, 768, 1536])
    def test_case_F5_every_query_function(self, dimensions, tmp_path):
        server = EmbeddingServer(dimensions)
        docs = write(tmp_path / "docs", a_md="alpha ducks", b_md="beta geese", c_md="gamma swans\n\n# Ducks\n\nducks")
        with serving(server) as address:
            path = prepare_embeddings(
                docs, tmp_path / "kb.duckdb", embed_model_name="test-model", embedding_provider="openai",
                base_url=f"{address}/v1", embed_dim=dimensions, progress="off",
            ).path  # fmt: skip
            assert rows(path, "SELECT DISTINCT length(embedding) FROM documents") == [(dimensions,)]
            for query in (hybrid_query, sqlrag.vector_query, sqlrag.lexical_query):
                assert ids(query("geese", path))[0] == "b.md#0"
            for fusion in ("rrf", "weighted", "convex"):
                assert ids(hybrid_query("geese", path, fusion=fusion))[0] == "b.md#0"
            vector = HashingEmbedder(f"hashing-{dimensions}").embed(["geese"], kind="query")[0]
            for given in (vector, vector.astype(np.float64), vector.tolist()):
                assert ids(sqlrag.vector_query(None, path, query_vector=given))[0] == "b.md#0"
            with Store(path) as store:
                assert store.check() == []
                assert ids(store.vector_query("geese", exact=True))[0] == "b.md#0"


class TestCounting:
    def test_openais_tokens_are_those_of_its_tokenizer(self):
        assert openai_offsets("") == []
        # From the tokenizer page of the vendor: "hello world" is two tokens, " world" holds its blank.
        assert openai_offsets("hello world") == [(0, 5), (5, 11)]
        text = "Ünïcödé 東京大学 😀 and `code_like(this)` 1234567"
        offsets = openai_offsets(text)
        assert (offsets[0][0], offsets[-1][1]) == (0, len(text))
        assert all(first[1] == second[0] for first, second in itertools.pairwise(offsets))

    def test_without_the_vocabulary_tokens_are_estimated(self, monkeypatch, caplog):
        from sqlrag.embedders import function

        monkeypatch.setattr(function, "_CL100K_FILE", "nowhere")
        function._cl100k.cache_clear()
        try:
            assert openai_offsets("hello world") == estimated_offsets("hello world")
            assert "estimated" in caplog.text
        finally:
            function._cl100k.cache_clear()

    @pytest.mark.slow
    def test_the_estimate_is_above_the_real_counts(self):
        from tests.support.helpers import ROOT

        for page in sorted((ROOT / "data" / "handbook").rglob("*.md")):
            text = page.read_text("utf-8")
            assert len(openai_offsets(text)) < len(estimated_offsets(text))


def test_scrubbing():
    assert scrub(f"key {KEY}, Bearer abc.def; api_key: xyz, fine") == "key sk-***, Bearer ***; api_key: ***, fine"
    assert scrub("the word secret", "secret") == "the word ***"
    assert scrub("disk-full at task-0123456789") == "disk-full at task-0123456789"


def test_the_options_of_load_embedder_are_those_that_some_provider_takes():
    given = set(inspect.signature(load_embedder).parameters) - {"model_name", "provider"}
    classes = [
        embedders.OnnxEmbedder,
        embedders.OpenAIEmbedder,
        embedders.OllamaEmbedder,
        embedders.HuggingFaceEmbedder,
    ]
    taken = {name for cls in classes for name in inspect.signature(cls).parameters} - {"model_name"}
    assert given == taken


def test_every_error_of_a_provider_is_one_of_ours():
    assert issubclass(embedders.batching.RefusedBatchError, ProviderError)
    assert issubclass(remote._RetryableError, SqlragError)


@pytest.mark.rest
class TestHandbook:
    @pytest.mark.parametrize("provider", ["openai", "vllm", "ollama"])
    def test_the_command_of_a_provider_works(self, provider, tmp_path, monkeypatch):
        (block,) = [
            block
            for block in blocks(HANDBOOK / "guides" / "embedding-models.md")
            if block.language == "bash" and f"-o {provider}.duckdb" in block.text
        ]
        write(tmp_path / "docs", a_md="alpha", b_md="beta")
        monkeypatch.chdir(tmp_path)
        with serving(EmbeddingServer(8)) as address:
            monkeypatch.setenv("OPENAI_BASE_URL", f"{address}/v1")
            monkeypatch.setenv("OLLAMA_HOST", address)
            run_shell(block.text.replace("http://localhost:8000", address).replace("sk-…", KEY), block.line)
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            assert ids(hybrid_query("beta", tmp_path / f"{provider}.duckdb"))[0] == "b.md#0"
