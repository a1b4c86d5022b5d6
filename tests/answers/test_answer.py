"""Answers: sources, text and events, whatever the chat model does; a server on this machine plays the model."""

from __future__ import annotations

import hashlib
import json
import logging
import re
import time

import pytest

from sqlrag import (
    Candidate,
    InputError,
    ModelUnavailableError,
    NotFoundError,
    ProviderError,
    RetrievePlan,
    Store,
    get_source_documents,
)
from sqlrag.answers.answer import answer
from sqlrag.answers.chat_models import OpenAIChat, Piece
from sqlrag.answers.generate import NO_SOURCES
from sqlrag.telemetry import current_request, metrics
from tests.support.chat_server import KEY, USAGE, ChatServer, Status, serving
from tests.support.helpers import build
from tests.support.loopback import CUTS, cutting

PAGES = {
    "pump_md": "# Pump\n\nOpen the red valve first. Then start the motor.\n\n## Stopping\n\nClose it last.\n",
    "door_txt": "Close the door before you start the pump.\n",
    "oven_md": "# Oven\n\nBread bakes for forty minutes.\n",
}
QUESTION = "Which valve is the first at the pump?"


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), **PAGES)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


def ask(kb, server, question=QUESTION, **more):
    """Answer a question with a server that runs meanwhile; without retries unless they are asked for."""
    with serving(server) as url:
        return answer(question, kb, chat_model="tiny", base_url=url, **{"max_retries": 0, "timeout": 5, **more})


def events_of(kb, server, question=QUESTION, **more):
    with serving(server) as url:
        given = {"max_retries": 0, "timeout": 5, **more}
        return list(answer(question, kb, chat_model="tiny", base_url=url, stream=True, **given))


def types(events):
    """Return the types of events, each run of them once."""
    return [event.type for place, event in enumerate(events) if place == 0 or events[place - 1].type != event.type]


class TestWhole:
    def test_text_sources_citations_usage_and_times(self, kb):
        server = ChatServer("The red valve [1]. Mind the door [2, 1].")
        found = ask(kb, server)
        assert found.text == "The red valve [1]. Mind the door [2, 1]."
        assert found.citations == [1, 2]
        assert found.unknown_citations == []
        assert (found.error, found.finish_reason, found.notices) == (None, "stop", [])
        assert found.usage == {"prompt_tokens": 120, "completion_tokens": 7}
        assert {"retrieve", "fit", "model", "total"} <= found.timings.keys()
        assert found.timings["total"] >= found.timings["model"] > 0
        assert re.fullmatch(r"[0-9a-f]{32}", found.request_id)
        assert found.queries == [QUESTION]

    def test_a_source_can_be_checked(self, kb, tmp_path_factory):
        found = ask(kb, ChatServer())
        documents = {d["doc_id"]: d for d in get_source_documents([s["node_id"] for s in found.sources], kb)}
        assert [source["number"] for source in found.sources] == list(range(1, len(found.sources) + 1))
        assert {source["doc_id"] for source in found.sources} == {"pump.md", "door.txt", "oven.md"}
        for source in found.sources:
            ((start, end),) = source["spans"]
            assert documents[source["doc_id"]]["text"][start:end] == source["quote"]
            assert (source["i_start"], source["i_end"]) == (start, end)
            name = source["doc_id"].replace(".", "_")
            assert source["checksum"] == hashlib.sha256(PAGES[name].encode()).hexdigest()
            assert source["file"] == source["doc_id"]
        scores = [source["score"] for source in found.sources]
        assert scores == sorted(scores, reverse=True)

    def test_what_the_model_is_sent(self, kb):
        server = ChatServer()
        found = ask(kb, server, temperature=0.25, max_tokens=77, stop="###", system="You are a plumber.", api_key=KEY)
        (body,), (headers,) = server.requests, server.headers
        assert body["model"] == "tiny"
        assert (body["temperature"], body["max_tokens"], body["stop"]) == (0.25, 77, ["###"])
        assert body["stream"] is False
        system, user = body["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert system["content"].startswith("You are a plumber.\n\nAnswer the question from its numbered sources")
        assert QUESTION in user["content"]
        for source in found.sources:
            assert f"[{source['number']}] [Source: {source['file']} score={source['score']:.4f}]" in user["content"]
            assert source["quote"].lstrip("# ") in user["content"]  # what is seen of it
        assert "#" not in user["content"]
        assert headers["authorization"] == f"Bearer {KEY}"
        assert headers["x-client-request-id"] == found.request_id

    def test_what_is_not_asked_for_is_not_sent(self, kb):
        server = ChatServer()
        ask(kb, server)
        assert server.requests[0].keys() == {"model", "messages", "stream", "max_tokens"}

    def test_an_open_store_and_a_plan(self, kb):
        with Store(kb) as store:
            found = ask(store, ChatServer(), plan=RetrievePlan(mode="lexical", k=1))
            assert store.lexical_query("oven")  # it is still open
        assert [source["node_id"] for source in found.sources] == ["pump.md#0"]
        assert found.sources[0]["score_type"] == "bm25"

    def test_contexts_of_ones_own_in_their_order(self, kb):
        given = [Candidate("oven.md", 0, "# Oven\n\nBread bakes for forty minutes.", 0.1), {"text": "by hand"}]
        found = ask(kb, ChatServer("x [2]"), contexts=given)
        assert [source["quote"] for source in found.sources] == [given[0].content, "by hand"]
        assert found.sources[0]["checksum"] == hashlib.sha256(PAGES["oven_md"].encode()).hexdigest()
        assert found.sources[1]["checksum"] is None
        assert "retrieve" not in found.timings
        without_file = ask(None, ChatServer("x [2]"), contexts=given)
        assert without_file.sources[0]["checksum"] is None
        assert without_file.citations == [2]

    def test_a_template_of_ones_own(self, kb):
        server = ChatServer()
        ask(kb, server, template="Q={{ question }} N={{ contexts|length }} {{ contexts[0].block }}")
        assert server.requests[0]["messages"][1]["content"].startswith(f"Q={QUESTION} N=4 [1] [Source: pump.md")

    def test_str_shows_text_and_sources(self, kb):
        shown = str(ask(kb, ChatServer("The red valve [1].")))
        assert shown.startswith("The red valve [1].\n\nSources (* cited):\n*[1] pump.md, Pump, characters 0-55, score ")
        assert " [2] " in shown
        assert json.loads(json.dumps(ask(kb, ChatServer()).as_dict()))["text"]

    def test_the_answer_was_cut_off(self, kb):
        server = ChatServer()
        server.finish_reason = "length"
        assert ask(kb, server, max_tokens=5).notices == ["The answer was cut off at max_tokens=5."]

    def test_newer_spellings_of_the_request(self, kb):
        wants = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
        server = ChatServer(request_1=Status(400, wants))
        assert ask(kb, server).error is None
        assert [("max_tokens" in body, body.get("max_completion_tokens")) for body in server.requests] == [
            (True, None), (False, 512),
        ]  # fmt: skip
        server = ChatServer(request_1=Status(422, "extra field stream_options"))
        events = events_of(kb, server)
        assert types(events) == ["sources", "text", "done"]  # nobody tells the usage


class TestStream:
    def test_events_in_their_order(self, kb):
        events = events_of(kb, ChatServer("The red valve [1]."), request_id="r-1")
        assert types(events) == ["sources", "text", "usage", "done"]
        assert "".join(event.text for event in events) == "The red valve [1]."
        assert len([event for event in events if event.type == "text"]) == 4
        assert {event.request_id for event in events} == {"r-1"}
        whole = events[-1].answer
        assert events[0].sources == whole.sources != []
        assert (whole.text, whole.citations) == ("The red valve [1].", [1])
        assert events[-2].usage == whole.usage == {k: USAGE[k] for k in ("prompt_tokens", "completion_tokens")}
        assert whole.timings["first_text"] <= whole.timings["model"]

    def test_text_comes_as_it_is_made(self, kb):
        server = ChatServer("one two three four [1]", all="stalls")
        with serving(server) as url:
            events = answer(QUESTION, kb, chat_model="tiny", base_url=url, stream=True, timeout=60)
            assert next(events).type == "sources"
            assert server.requests == []  # the sources come before the model is asked
            assert [next(events).text for _ in range(3)] == ["one", " two", " three"]  # the server has stopped here
            events.close()

    def test_stream_and_whole_agree(self, kb):
        whole, streamed = ask(kb, ChatServer()), events_of(kb, ChatServer())[-1].answer
        for name in ("text", "sources", "citations", "finish_reason", "usage", "notices", "queries"):
            assert getattr(whole, name) == getattr(streamed, name), name

    def test_arguments_and_the_file_are_checked_at_once(self, kb, tmp_path):
        with pytest.raises(NotFoundError):
            answer(QUESTION, tmp_path / "missing.duckdb", chat_model="m", base_url="http://127.0.0.1:9/v1", stream=True)

    def test_events_are_plain_values(self, kb):
        rows = [json.loads(json.dumps(event.as_dict())) for event in events_of(kb, ChatServer())]
        assert [sorted(row.keys() - {"type", "request_id"}) for row in (rows[0], rows[1], rows[-2], rows[-1])] == [
            ["notices", "sources"], ["text"], ["usage"], ["answer"],
        ]  # fmt: skip


# What a chat server does wrong: the fault, what the error says, and the number of requests.
FAULTS = {
    "hang": ("hang", "did not respond for 0.4 s", 1),
    "429": (Status(429, "slow down"), r"answered HTTP 429: slow down\.", 1),
    "500": (Status(500, "oops"), r"answered HTTP 500: oops\.", 1),
    "401": (Status(401, f"Incorrect API key provided: {KEY}."), r"HTTP 401: .* \*\*\*\. Set the key by api_key", 1),
    "404": (Status(404, "no model 'tiny'"), "HTTP 404: no model 'tiny'. Check the model's name", 1),
    "400": (Status(400, "the prompt is too long"), "HTTP 400: the prompt is too long", 1),
    "invalid json": ("invalid json", "returned an invalid answer", 1),
    "html": ("html", "without a choice|ended its answer|returned an invalid answer", 1),
    "empty choice": ("empty choice", "without a choice|ended its answer in the middle", 1),
    "no text": ("no text", r"returned no text \(stop\)", 1),
}
# A short one only where it is what ends the wait: a busy machine may take longer to answer.
TIMEOUTS = {name: 0.4 if name == "hang" else 30 for name in FAULTS}


class TestModelIsDown:
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    @pytest.mark.parametrize("name", FAULTS)
    def test_the_sources_come_with_the_reason(self, kb, name, stream):
        fault, says, requests = FAULTS[name]
        server = ChatServer(all=fault)
        if stream:
            events = events_of(kb, server, timeout=TIMEOUTS[name], api_key=KEY)
            assert types(events)[:2] == ["sources", "error"]
            assert types(events)[-1] == "done"
            found = events[-1].answer
            assert events[1].error == found.error
        else:
            found = ask(kb, server, timeout=TIMEOUTS[name], api_key=KEY)
        assert re.search(says, found.error), found.error
        assert "The chat model 'tiny' at http://127.0.0.1:" in found.error or "returned no text" in found.error
        assert (found.text, found.citations, found.finish_reason) == ("", [], None)
        assert len(found.sources) == 4
        assert len(server.requests) == requests
        assert KEY not in found.error
        assert str(found).startswith("No answer: ")

    @pytest.mark.parametrize("name", FAULTS)
    def test_strict_raises(self, kb, name):
        fault, says, _ = FAULTS[name]
        with pytest.raises((ProviderError, ModelUnavailableError), match=says):
            ask(kb, ChatServer(all=fault), timeout=TIMEOUTS[name], api_key=KEY, strict=True)

    def test_nobody_listens(self, kb):
        found = answer(QUESTION, kb, chat_model="tiny", base_url="http://127.0.0.1:9/v1", max_retries=0)
        assert "cannot be reached" in found.error
        assert len(found.sources) == 4

    @pytest.mark.parametrize(
        ("fault", "says"),
        [
            ("broken stream", "closed the connection before the end of its answer"),
            ("ends early", "ended its answer in the middle"),
            ("error in stream", "out of memory"),
            ("stalls", "did not respond for 0.4 s"),
        ],
    )
    def test_a_stream_that_breaks_keeps_what_came(self, kb, fault, says):
        server = ChatServer("one two three four five [1]", all=fault)
        events = events_of(kb, server, timeout=0.4 if fault == "stalls" else 30, max_retries=2)
        assert types(events) == ["sources", "text", "error", "done"]
        found = events[-1].answer
        assert found.text == "one two three"
        assert re.search(says, found.error), found.error
        assert len(server.requests) == 1  # a reply that has begun is not asked for again
        assert "The answer is not complete: " in str(found)
        assert found.notices == []

    @pytest.mark.parametrize("stream", [False, True])
    @pytest.mark.parametrize("cut", CUTS)
    def test_fault_S28_an_answer_that_is_cut_came_from_a_server_that_was_reached(self, kb, cut, stream):
        with cutting(CUTS[cut]) as url:
            given = {"chat_model": "tiny", "base_url": f"{url}/v1", "max_retries": 0, "timeout": 5}
            found = (
                list(answer(QUESTION, kb, stream=True, **given))[-1].answer if stream else answer(QUESTION, kb, **given)
            )
        assert "closed the connection before the end of its answer" in found.error
        assert "cannot be reached" not in found.error
        assert len(found.sources) == 4

    def test_retry_after_is_respected(self, kb):
        server = ChatServer(request_1=Status(429, Retry_After="0.3"))
        began = time.perf_counter()
        found = ask(kb, server, max_retries=2)
        assert found.error is None
        assert len(server.requests) == 2
        assert 0.3 <= time.perf_counter() - began < 5

    def test_retries_end(self, kb):
        server = ChatServer(all=Status(503, "busy", Retry_After="0.01"))
        assert "HTTP 503: busy" in ask(kb, server, max_retries=2).error
        assert len(server.requests) == 3

    def test_a_model_of_ones_own_that_fails(self, kb):
        class Broken:
            model_name = "broken"

            def chat(self, messages, **options):
                yield Piece("half of it ")
                raise RuntimeError("no more memory")

        found = answer(QUESTION, kb, chat_model=Broken())
        assert found.text == "half of it "
        assert found.error == "The chat model 'broken' failed: RuntimeError: no more memory"
        with pytest.raises(ProviderError, match="no more memory") as caught:
            answer(QUESTION, kb, chat_model=Broken(), strict=True)
        assert isinstance(caught.value.__cause__, RuntimeError)


class TestCitations:
    def test_unknown_numbers_are_reported(self, kb):
        found = ask(kb, ChatServer("The red valve [1], the blue one [9] and [12]."))
        assert (found.citations, found.unknown_citations) == ([1], [9, 12])
        assert found.notices == ["The answer cites [9], [12], but its sources are [1] to [4]."]

    def test_no_citation_is_reported(self, kb):
        assert ask(kb, ChatServer("The red valve.")).notices == ["The answer cites none of its sources."]


class TestNothingFound:
    def test_the_model_is_not_asked(self, kb):
        server = ChatServer()
        plan = RetrievePlan(tags_any=("no such tag",))
        found = ask(kb, server, plan=plan)
        assert (found.text, found.finish_reason, found.error, found.sources) == (NO_SOURCES, "no_sources", None, [])
        assert any("No chunk passes the filters" in notice for notice in found.notices)
        events = events_of(kb, server, plan=plan)
        assert types(events) == ["sources", "text", "done"]
        assert server.requests == []
        assert ask(None, server, contexts=[]).finish_reason == "no_sources"


class TestWindow:
    def test_the_prompt_fits_the_window(self, kb):
        def words(text):
            return len(text.split())

        server = ChatServer()
        found = ask(kb, server, count_tokens=words, context_window=200, max_tokens=50)
        sent = sum(words(message["content"]) for message in server.requests[0]["messages"])
        assert sent <= 150 - 32  # 32 are for the server's own format
        assert 0 < len(found.sources) < 4
        assert len(found.left_out) == 4 - len(found.sources)
        assert found.left_out[0].reason == "no room left after better ones"
        assert any("did not fit" in notice for notice in found.notices)
        assert found.sources[0]["node_id"] == ask(kb, ChatServer()).sources[0]["node_id"]

    def test_a_template_that_takes_more_than_was_counted(self, kb):
        template = "{% for context in contexts %}{{ context.block }}{{ 'word ' * 30 * loop.length }}{% endfor %}"
        server = ChatServer()
        found = ask(
            kb, server, template=template, count_tokens=lambda t: len(t.split()), context_window=400, max_tokens=50
        )
        sent = sum(len(message["content"].split()) for message in server.requests[0]["messages"])
        assert sent <= 400 - 50 - 32
        assert [left.reason for left in found.left_out] == ["no room left after better ones"] * (4 - len(found.sources))
        assert 0 < len(found.sources) < 4
        assert any("with this template" in notice for notice in found.notices)

    def test_no_room_at_all(self, kb):
        with pytest.raises(InputError, match="context_window=600 has no room for a source after"):
            ask(kb, ChatServer(), context_window=600)


class TestExpand:
    @staticmethod
    def reply(body):
        return "1. forty minutes\n2. bread oven" if "search queries" in body["messages"][0]["content"] else "Bread [1]."

    def test_the_models_wordings_are_searched_too(self, kb):
        server = ChatServer(self.reply)
        plan = RetrievePlan(mode="lexical", k=2)
        plain = ask(kb, ChatServer(), "red valve", plan=plan)
        found = ask(kb, server, "red valve", expand="llm", plan=plan)
        assert "oven.md" not in {source["doc_id"] for source in plain.sources}
        assert found.queries == ["red valve", "forty minutes", "bread oven"]
        # The question weighs 1, each wording 1/2: 1/61 for its best, 2 · (1/2)/61 for the oven in both of the others.
        assert {source["doc_id"]: source["score"] for source in found.sources} == {
            "pump.md": pytest.approx(1 / 61, abs=1e-9), "oven.md": pytest.approx(1 / 61, abs=1e-9),
        }  # fmt: skip
        assert len(server.requests) == 2
        assert {headers["x-client-request-id"] for headers in server.headers} == {found.request_id}
        assert "expand" in found.timings

    @pytest.mark.parametrize("fault", [Status(500), "no text", "empty choice"])
    def test_a_failure_leaves_the_plain_question(self, kb, fault):
        server = ChatServer(request_1=fault)
        found = ask(kb, server, expand="llm")
        assert found.queries == [QUESTION]
        assert found.notices[0].startswith("The question was not expanded: ")
        assert found.error is None
        assert found.sources == ask(kb, ChatServer()).sources


class TestObserving:
    def test_the_request_id_is_in_every_record_and_the_text_in_none(self, kb, caplog):
        with caplog.at_level(logging.DEBUG, logger="sqlrag"):
            ask(kb, ChatServer(), request_id="order-66", api_key=KEY)
        records = [record for record in caplog.records if record.name == "sqlrag.answer"]
        assert len(records) >= 2
        assert {record.request_id for record in records} == {"order-66"}
        assert all(record.getMessage().startswith("[order-66] ") for record in records)
        assert "top_k 12" in records[0].getMessage()
        assert KEY not in caplog.text
        assert QUESTION not in "".join(record.getMessage() for record in records)

    def test_the_search_runs_inside_of_the_request(self):
        class Elsewhere:
            def retrieve(self, query, plan, *, query_vector=None):
                seen.append(current_request())
                return [Candidate("a.md", 0, "text", 1.0)]

        seen = []
        ask(Elsewhere(), ChatServer("x [1]"), request_id="r-2")
        assert seen == ["r-2"]
        assert current_request() is None

    def test_counters(self, kb):
        before = metrics()
        ask(kb, ChatServer())
        ask(kb, ChatServer(all=Status(500)))
        events_of(kb, ChatServer())
        after = metrics()
        grown = {
            name: after[name] - before[name] for name in after if "seconds" not in name and after[name] != before[name]
        }
        grown = {name: number for name, number in grown.items() if not name.startswith(("search", "embed"))}
        assert grown == {
            "answers": 3, "failed_answers": 1, "model_calls": 3, "failed_model_calls": 1,
            "prompt_tokens": 240, "completion_tokens": 14,
        }  # fmt: skip
        assert after["model_seconds"] > before["model_seconds"]

    def test_keys_are_shown_nowhere(self):
        model = OpenAIChat("tiny", base_url="http://127.0.0.1:9/v1", api_key=KEY)
        assert KEY not in repr(model) + str(model)
        assert repr(model) == "OpenAIChat('tiny', base_url='http://127.0.0.1:9/v1')"


class TestArguments:
    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            ({"question": " "}, "question is blank"),
            ({"question": 7}, "question must be a string"),
            ({"temperature": 3}, "temperature"),
            ({"max_tokens": 0}, "max_tokens"),
            ({"max_tokens": True}, "max_tokens"),
            ({"stop": [""]}, "stop must be"),
            ({"context_window": "big"}, "context_window"),
            ({"expand": "rm3"}, 'expand must be None or "llm"'),
            ({"margin": -1}, "margin"),
            ({"count_tokens": 7}, "count_tokens"),
            pytest.param({"count_tokens": lambda text: -1}, "count_tokens must return", id="tokens below 0"),
            ({"timeout": 0}, "timeout"),
            ({"max_retries": 11}, "max_retries"),
            ({"request_id": "two words"}, "request_id"),
            ({"request_id": "a\r\nb: c"}, "request_id"),
            ({"chat_model": " "}, "blank"),
            ({"chat_model": 7}, "chat_model must be"),
            ({"base_url": "localhost:1/v1"}, "base_url must be an address"),
            ({"base_url": "http://me:secret@localhost/v1"}, "must not contain a user"),
            ({"api_key": "two words"}, "api_key has characters"),
            ({"template": "{{ nothing }}"}, "template fails in line 1: UndefinedError"),
            ({"stream": 1}, "stream must be"),
            ({"db_path": None}, "Pass db_path"),
            ({"db_path": 7}, "db_path must be"),
        ],
        ids=str,
    )
    def test_wrong_ones(self, kb, arguments, says):
        given = {
            "question": QUESTION,
            "db_path": kb,
            "chat_model": "m",
            "base_url": "http://127.0.0.1:9/v1",
            **arguments,
        }
        with pytest.raises(InputError, match=says) as caught:
            answer(**given)
        assert "secret" not in str(caught.value)

    def test_openai_itself_needs_a_key(self, kb):
        with pytest.raises(ModelUnavailableError, match="needs a key: set OPENAI_API_KEY"):
            answer(QUESTION, kb, chat_model="gpt-5-mini")

    def test_the_environment_names_server_and_key(self, kb, monkeypatch):
        server = ChatServer()
        with serving(server) as url:
            monkeypatch.setenv("OPENAI_BASE_URL", url + "/")
            monkeypatch.setenv("OPENAI_API_KEY", KEY)
            assert answer(QUESTION, kb, chat_model="tiny").error is None
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"


def test_options_of_a_search_beside_given_contexts_are_told(kb):
    given = [{"text": "Tags are set in front matter.", "doc_id": "a", "score": 1.0}]
    found = ask(None, ChatServer("x [1]"), contexts=given, plan=RetrievePlan(k=1), expand="llm")
    assert [notice.split()[0] for notice in found.notices] == ["plan", "expand"]
