"""Counters of the process, ids of requests, and spans where OpenTelemetry's API is installed."""

from __future__ import annotations

import sys
import threading

import pytest

from sqlrag import Candidate, InputError, telemetry
from sqlrag.answers.answer import answer
from sqlrag.telemetry import Measure, count, current_request, measured, metrics, request, request_id_of
from tests.support.chat_server import ChatServer, Status, serving
from tests.support.helpers import build, python


def grown(before, *names):
    after = metrics()
    return {name: after[name] - before[name] for name in names}


class TestCounters:
    def test_every_name_is_there_from_the_start(self):
        printed = python("from sqlrag.telemetry import metrics\nprint(metrics())")
        counters = eval(printed)
        assert set(counters.values()) == {0}
        assert list(counters) == sorted(counters)
        assert {
            "files", "documents", "chunks", "embedding_calls", "searches", "answers", "model_calls", "failed_searches",
            "model_seconds",
        } <= counters.keys()  # fmt: skip
        assert counters.keys() == metrics().keys()

    def test_it_is_a_copy(self):
        metrics()["files"] = -1
        assert metrics()["files"] >= 0

    def test_an_ingest_is_counted(self, tmp_path):
        before = metrics()
        build(tmp_path, a_md="# A\n\nOne.", b_md="# B\n\nTwo.\n\n## C\n\nThree.", bad_pdf=b"no pdf")
        assert grown(before, "ingests", "files", "documents", "chunks", "failed_documents") == {
            "ingests": 1, "files": 3, "documents": 2, "chunks": 3, "failed_documents": 1,
        }  # fmt: skip
        assert grown(before, "ingest_seconds")["ingest_seconds"] > 0

    def test_threads_lose_nothing(self):
        before = metrics()
        threads = [threading.Thread(target=lambda: [count(chunks=1) for _ in range(2000)]) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert grown(before, "chunks") == {"chunks": 16_000}

    def test_failures_and_seconds_of_a_block(self):
        before, timings = metrics(), {}
        with measured("search", timings):
            pass
        with pytest.raises(ZeroDivisionError), measured("search", timings):
            _ = 1 / 0
        assert grown(before, "searches", "failed_searches") == {"searches": 2, "failed_searches": 1}
        assert timings["search"] == pytest.approx(grown(before, "search_seconds")["search_seconds"], abs=1e-4)

    def test_a_measure_ends_once(self):
        before = metrics()
        measure = Measure("search")
        measure.end()
        measure.end("again")
        assert grown(before, "searches", "failed_searches") == {"searches": 1, "failed_searches": 0}


class TestRequestIds:
    def test_one_inside_of_another_and_one_for_each_thread(self):
        seen = []
        with request("outer"):
            thread = threading.Thread(target=lambda: seen.append(current_request()))
            thread.start()
            thread.join()
            assert request_id_of(None) == "outer"
            with request("inner"):
                assert current_request() == "inner"
            assert current_request() == "outer"
        assert (current_request(), seen) == (None, [None])

    def test_a_new_one_is_unique_and_a_given_one_is_checked(self):
        assert request_id_of(None) != request_id_of(None)
        assert request_id_of("a-1") == "a-1"
        for wrong in ("", "a b", "é", "a\nb", "x" * 129, 7):
            with pytest.raises(InputError, match="request_id must be"):
                request_id_of(wrong)


@pytest.fixture
def spans(monkeypatch):
    """Return the list of finished spans."""
    sdk = pytest.importorskip("opentelemetry.sdk.trace")
    from opentelemetry import trace
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter.get_finished_spans


class TestSpans:
    @pytest.mark.parametrize("stream", [False, True])
    def test_the_stages_are_children_of_the_answer(self, spans, stream):
        with serving(ChatServer("x [1]")) as url:
            found = answer("What?", Elsewhere(), chat_model="tiny", base_url=url, stream=stream, request_id="r-7")
            if stream:
                for event in found:
                    # Whoever reads the stream does not run inside of a span.
                    assert current_span_is_none(), event.type
        by_name = {span.name: span for span in spans()}
        assert by_name.keys() == {"sqlrag.answer", "sqlrag.retrieve", "sqlrag.fit", "sqlrag.model"}
        whole = by_name.pop("sqlrag.answer")
        for span in by_name.values():
            assert span.parent.span_id == whole.context.span_id
            assert span.attributes["sqlrag.request_id"] == "r-7"
            assert span.status.is_ok
        assert by_name["sqlrag.model"].attributes["gen_ai.request.model"] == "tiny"

    def test_a_failure_is_marked_without_its_words(self, spans):
        with serving(ChatServer(all=Status(500, "secret words"))) as url:
            answer("What?", Elsewhere(), chat_model="tiny", base_url=url, max_retries=0)
        failed = {span.name: span.status for span in spans() if not span.status.is_ok}
        assert failed.keys() == {"sqlrag.model", "sqlrag.answer"}
        assert failed["sqlrag.model"].description == "ProviderError"
        assert "secret" not in str([span.to_json() for span in spans()])

    def test_without_the_api_all_works(self, monkeypatch):
        telemetry._tracing.cache_clear()
        monkeypatch.setitem(sys.modules, "opentelemetry", None)
        try:
            assert telemetry._tracing() is None
            with measured("search") as measure:
                assert measure.span is None
        finally:
            telemetry._tracing.cache_clear()


class Elsewhere:
    def retrieve(self, query, plan, *, query_vector=None):
        return [Candidate("a.md", 0, "text", 1.0)]


def current_span_is_none():
    from opentelemetry import trace

    return not trace.get_current_span().get_span_context().is_valid
