"""Answers where the server, the model, the key or the arguments are not what they should be."""

from __future__ import annotations

import asyncio
import gc
import io
import json
import logging
import traceback
import warnings

import numpy as np
import pytest

from sqlrag import (
    Candidate,
    Candidates,
    CompressPolicy,
    InputError,
    ModelUnavailableError,
    OpenAIChat,
    ProviderError,
    RetrievePlan,
    aanswer,
    answer,
    build_prompt,
    fit_context,
    metrics,
)
from sqlrag.answers.chat_models import Piece
from sqlrag.network import scrub
from sqlrag.telemetry import request_id_of
from tests.support.chat_server import ChatServer, Status, serving
from tests.support.helpers import build

QUESTION = "Which valve comes first?"
CONTEXTS = [Candidate("pump.md", 0, "Open the red valve first.", 0.5)]
# Without a prefix that looks like a key; with what JSON, HTML and addresses escape.
KEY = 'hunter2"Pass\\w0rd<&/xyz'
HUGE = 10**5000


@pytest.fixture(autouse=True)
def no_environment(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


class Model:
    """Yields the given pieces."""

    model_name = "own"

    def __init__(self, *pieces):
        self.pieces = pieces

    def chat(self, messages, **options):
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece


def ask(server, **more):
    """Return the answer of a server, in one piece or streamed."""
    with serving(server) as url:
        given = {"contexts": CONTEXTS, "chat_model": "tiny", "base_url": url, "max_retries": 0, "timeout": 5, **more}
        found = answer(QUESTION, **given)
        return list(found)[-1].answer if more.get("stream") else found


def own(*pieces, **more):
    return answer(QUESTION, **{"contexts": CONTEXTS, "chat_model": Model(*pieces), **more})


def completion(content, **more):
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": "stop"}
    return json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice], **more})


def stream_of(*contents, finish="stop"):
    """Return a fault that streams deltas with these contents; bytes of JSON are taken as they are."""
    events = []
    for place, content in enumerate(contents):
        reason = finish if place == len(contents) - 1 else None
        choice = {"index": 0, "delta": {"content": content}, "finish_reason": reason}
        events.append(json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}))
    return Status(
        200, body="".join(f"data: {event}\n\n" for event in [*events, "[DONE]"]), content_type="text/event-stream"
    )


def whole(body):
    return Status(200, body=body)


# How a server may show the key that it was sent.
ECHOES = {
    "error of 200": lambda: whole(json.dumps({"error": {"message": f"bad key {KEY}"}})),
    "error of 200 that is a string": lambda: whole(json.dumps({"error": KEY})),
    "error of 200 that is a list": lambda: whole(json.dumps({"error": [{"k": KEY}]})),
    "no JSON": lambda: Status(200, body=f"<p>{KEY}</p>", content_type="text/html"),
    "finish_reason": lambda: whole(completion("").replace('"stop"', json.dumps(KEY))),
    "content": lambda: whole(completion({"key": KEY})),
    "401 in JSON in JSON": lambda: Status(401, json.dumps({"k": json.dumps(KEY)})),
    "401 as HTML": lambda: Status(401, body="hunter2&quot;Pass\\w0rd&lt;&amp;/xyz", content_type="text/html"),
    "401 in ASCII": lambda: Status(401, "hunter2\\u0022Pass\\u005cw0rd\\u003c\\u0026\\/xyz"),
    "401 without a message": lambda: Status(401, body=json.dumps({"error": {"key": KEY}})),
    "error in a stream": lambda: Status(
        200, body=f"data: {json.dumps({'error': [KEY]})}\n\n", content_type="text/event-stream"
    ),
    "a chunk that is none": lambda: Status(
        200, body=f"data: {json.dumps({'message': KEY})}\n\n", content_type="text/event-stream"
    ),
    "redirect": lambda: Status(307, Location="http://127.0.0.1:9/?key=hunter2%22Pass%5cw0rd%3C%26%2Fxyz"),
}


class TestTheKey:
    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    @pytest.mark.parametrize("name", ECHOES)
    def test_it_is_shown_nowhere(self, name, stream, caplog):
        with caplog.at_level(logging.DEBUG, "sqlrag"):
            found = ask(ChatServer(all=ECHOES[name]()), api_key=KEY, stream=stream, expand="llm")
            with pytest.raises((ProviderError, ModelUnavailableError)) as caught:
                ask(ChatServer(all=ECHOES[name]()), api_key=KEY, stream=stream, strict=True)
        shown = io.StringIO()
        traceback.print_exception(caught.value, file=shown, chain=True)
        assert found.error
        for text in (repr(found), str(found), caplog.text, shown.getvalue(), repr(caught.value.__context__)):
            assert "Pass" not in text
            assert "xyz" not in text

    def test_nor_where_the_question_is_expanded(self, tmp_path, caplog):
        kb = build(tmp_path, pump_md="# Pump\n\nOpen the red valve first.\n")
        server = ChatServer(all=whole(json.dumps({"error": {"message": f"bad key {KEY}"}})))
        found = ask(server, db_path=kb, contexts=None, api_key=KEY, expand="llm")
        assert "The question was not expanded" in found.notices[0]
        assert "Pass" not in repr(found) + caplog.text

    def test_nor_where_a_model_of_ones_own_fails(self):
        error = RuntimeError("Authorization: Bearer abc.def")
        assert own(error).error == "The chat model 'own' failed: RuntimeError: Authorization: Bearer ***"
        with pytest.raises(ProviderError) as caught:
            own(error, strict=True)
        assert "abc.def" not in "".join(traceback.format_exception(caught.value))

    def test_long_runs_of_backslashes_take_no_time(self):
        assert scrub("\\" * 300_000 + "k", '\\"k') == "\\" * 300_000 + "k"
        assert scrub('a\\\\\\"b\\\\c', 'a"b\\c') == "***"


class TestContent:
    PARTS = [{"type": "text", "text": "The red "}, {"type": "thinking", "thinking": ["hm"]}, {"text": "valve [1]."}]

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_text_in_parts_is_joined(self, stream):
        found = ask(ChatServer(all=stream_of(self.PARTS) if stream else whole(completion(self.PARTS))), stream=stream)
        assert (found.text, found.citations, found.error) == ("The red valve [1].", [1], None)

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    @pytest.mark.parametrize("content", [{"a": 1}, 5, True, 1.5, [5], [{"type": "text", "text": 5}], [[]]])
    def test_anything_else_cannot_be_read(self, content, stream):
        found = ask(ChatServer(all=stream_of(content) if stream else whole(completion(content))), stream=stream)
        assert "returned an invalid answer: its content is " in found.error
        assert len(found.sources) == 1

    @pytest.mark.parametrize("choices", [{"a": 1}, "abc", [None], [[]], ["x"], [{"message": "hi"}], [{"message": [1]}]])
    def test_choices_that_are_none(self, choices):
        found = ask(ChatServer(all=whole(json.dumps({"choices": choices}))))
        assert found.error
        assert len(found.sources) == 1

    @pytest.mark.parametrize(
        "pieces", [[Piece(5)], [Piece(b"x")], ["abc"], [None], [Piece("a", finish_reason=5)], [Piece(None)]]
    )
    def test_a_model_of_ones_own_that_yields_no_text(self, pieces):
        found = own(*pieces)
        assert "returned an invalid answer" in found.error
        assert len(found.sources) == 1

    @pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
    def test_halves_of_a_character_are_joined_and_lone_ones_replaced(self, stream):
        found = own(Piece("a\ud83d"), Piece("\ude00 \udc00 [1]"), Piece("\ud83d", "stop"), stream=stream)
        texts = [event.text for event in found] if stream else [found.text]
        assert "".join(texts) == "a😀 \ufffd [1]\ufffd"
        for text in texts:
            text.encode()

    def test_halves_from_a_server(self):
        assert ask(ChatServer(all=stream_of("\ud83d", "\ude00 [1]")), stream=True).text == "😀 [1]"
        assert ask(ChatServer(all=Status(500, "no \ud83d"))).error.encode()


class TestUsage:
    GOOD = {"prompt_tokens": 3, "completion_tokens": np.int64(2)}

    @pytest.mark.parametrize(
        ("usage", "kept"),
        [
            ({**GOOD, "total_tokens": 5, "answers": 100}, {"prompt_tokens": 3, "completion_tokens": 2}),
            ({"answers": 100}, {}),
            ({"prompt_tokens": "5", "completion_tokens": 1}, {"completion_tokens": 1}),
            ({"prompt_tokens": -5, "completion_tokens": True}, {}),
            ({"prompt_tokens": HUGE, "completion_tokens": 2**40}, {}),
            ({"prompt_tokens": 1.5, "completion_tokens": None}, {}),
            ([1], {}),
            ("x", {}),
        ],
    )
    def test_only_numbers_of_tokens_are_taken(self, usage, kept):
        before = metrics()
        found = own(Piece("It is [1].", "stop", usage))
        after = metrics()
        assert (found.error, found.usage) == (None, kept)
        assert {name: after[name] - before[name] for name in ("answers", "prompt_tokens", "completion_tokens")} == {
            "answers": 1, "prompt_tokens": kept.get("prompt_tokens", 0),
            "completion_tokens": kept.get("completion_tokens", 0),
        }  # fmt: skip
        json.dumps(found.as_dict())

    def test_those_of_a_server(self):
        usage = {"prompt_tokens": 2**80, "completion_tokens": 4}
        assert ask(ChatServer(all=whole(completion("x [1]", usage=usage)))).usage == {"completion_tokens": 4}


class TestServers:
    def test_a_redirect_to_another_server_is_not_followed(self):
        other = ChatServer()
        with serving(other) as url:
            target = f"{url}/chat/completions"
            for fault in (Status(307, Location=target), Status(308, Location=target), Status(302, Location=target)):
                found = ask(ChatServer(all=fault), max_retries=2)
                assert f"answered HTTP {fault.status} and redirects to {target}, another server" in found.error
        assert other.requests == []

    def test_one_to_the_same_server_is(self):
        server = ChatServer(request_1=Status(307, Location="/v1/chat/completions"))
        assert ask(server).error is None
        assert len(server.requests) == 2

    def test_a_server_that_does_not_stream(self):
        found = ask(ChatServer(all=whole(completion("The red valve [1].", usage={"prompt_tokens": 4}))), stream=True)
        assert (found.text, found.finish_reason, found.error) == ("The red valve [1].", "stop", None)
        assert found.usage == {"prompt_tokens": 4}

    @pytest.mark.parametrize(
        "fault",
        [
            whole(json.dumps({"error": {"message": "log in first"}})),
            Status(200, body="<p>log in first</p>", content_type="text/html"),
            Status(200, body='data: {"message": "log in first"}\n\n', content_type="text/event-stream"),
            Status(200, body='data: {"error": ["log in first"]}\n\n', content_type="text/event-stream"),
        ],
    )
    def test_or_that_says_why_not(self, fault):
        assert "log in first" in ask(ChatServer(all=fault), stream=True).error

    def test_events_under_another_name_are_events(self):
        fault = stream_of("The red ", "valve [1].")
        fault.headers["content_type"] = "text/plain"
        assert ask(ChatServer(all=fault), stream=True).text == "The red valve [1]."

    def test_a_model_that_was_closed(self):
        with serving(ChatServer()) as url:
            model = OpenAIChat("tiny", base_url=url)
            model.close()
            assert "has been closed; create a new one" in own(chat_model=model).error
            with pytest.raises(ModelUnavailableError, match="closed"):
                list(model.chat([{"role": "user", "content": "x"}]))


class TestNothingIsLeftOpen:
    @pytest.fixture
    def closed(self, monkeypatch):
        names = []
        monkeypatch.setattr(OpenAIChat, "close", lambda model: names.append(model.model_name))
        return names

    def streamed(self, function=answer):
        return function(QUESTION, contexts=CONTEXTS, chat_model="tiny", base_url="http://127.0.0.1:9/v1", stream=True)

    @pytest.mark.slow
    def test_a_stream_that_nobody_iterates(self, closed):
        before = metrics()
        self.streamed().close()
        assert closed == ["tiny"]
        self.streamed()
        gc.collect()
        assert closed == ["tiny", "tiny"]
        assert metrics()["failed_answers"] - before["failed_answers"] == 2

    def test_nor_on_an_event_loop(self, closed):
        async def main():
            await self.streamed(aanswer)

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            asyncio.run(main())
            gc.collect()
        assert closed == ["tiny"]


class TestNoRoom:
    def test_what_was_found_and_does_not_fit_is_not_called_nothing(self):
        big = [{"doc_id": "a.md", "node_id": "a.md#0", "text": "word " * 400, "score": 1.0}]
        found = next(
            found for window in range(600, 720)
            if (found := quiet(lambda window=window: own(Piece("x [1]"), contexts=big, context_window=window)))
        )  # fmt: skip
        assert found.finish_reason == "no_room"
        assert found.text.startswith("No result for this question fits into the context window")
        assert [left.node_id for left in found.left_out] == ["a.md#0"]
        assert "1 chunk did not fit into" in found.notices[0]
        assert own(Piece("x"), contexts=[]).finish_reason == "no_sources"


def quiet(function):
    """Return what a function returns, None where it raises an InputError."""
    try:
        return function()
    except InputError:
        return None


def kind(value):
    """Return what a test is called after: pytest cannot write the largest numbers."""
    return type(value).__name__ if not isinstance(value, str) else value


class TestArguments:
    def test_scalars_of_numpy(self, tmp_path):
        kb = build(tmp_path, pump_md="# Pump\n\nOpen the red valve first.\n", oven_md="# Oven\n\nBread bakes.\n")
        found = answer(
            QUESTION, kb, chat_model=Model(Piece("x [1]")), plan=RetrievePlan(k=np.int64(1)),
            rerank=lambda question, texts: list(range(len(texts))), count_tokens=lambda text: np.int64(len(text) // 4),
        )  # fmt: skip
        assert len(found.sources) == 1
        window = fit_context(CONTEXTS, np.int64(50), count_tokens=lambda text: np.int64(9))
        assert (type(window.max_tokens), type(window.tokens), window.tokens) == (int, int, 9)
        row = {"text": "x", "score": np.float32(0.5), "page": np.int64(3), "i_start": np.int64(1), "i_end": np.int64(2)}
        json.dumps(build_prompt("q", [{**row, "heading_path": np.array(["A"])}]).sources)

    @pytest.mark.slow
    def test_lone_surrogates_in_question_and_contexts(self, tmp_path):
        kb = build(tmp_path, pump_md="# Pump\n\nOpen the red valve first.\n")
        for more in ({"compress": True}, {"rerank": "cosine"}, {"compress": CompressPolicy(stemmer="none")}):
            assert answer("valve \ud800", kb, chat_model=Model(Piece("x [1]")), **more).sources
        found = own(Piece("x [1]"), contexts=[Candidate("a", 0, "red valve \ud800")], compress=True)
        assert found.sources[0]["quote"] == "red valve \ufffd"

    @pytest.mark.parametrize("stop", [0, False, {}, 5, np.array([1, 2]), "", HUGE], ids=kind)
    def test_stops(self, stop):
        with pytest.raises(InputError, match="stop must"):
            own(Piece("x"), stop=stop)

    @pytest.mark.parametrize("name", ["expand", "request_id", "db_path", "rerank", "count_tokens", "plan", "contexts"])
    @pytest.mark.parametrize("value", [HUGE, object(), np.array([1, 2]), np.float64("nan")], ids=kind)
    def test_anything(self, name, value):
        if name == "contexts" and isinstance(value, np.ndarray):
            pytest.skip("it is a list, of wrong contexts")
        with pytest.raises(InputError, match=name):
            own(Piece("x"), **{name: value})

    @pytest.mark.parametrize("model", [HUGE, object(), Model, type("Nameless", (), {"chat": print})()], ids=kind)
    def test_models(self, model):
        with pytest.raises(InputError, match="chat_model must"):
            own(chat_model=model)

    def test_request_ids(self):
        with pytest.raises(InputError, match="very many digits"):
            request_id_of(HUGE)

    WRONG = (True, HUGE, -1.5, float("nan"), b"x", object(), {1: 2}, np.array([1, 2]), [1], [[]], "", "x", ())

    @pytest.mark.parametrize(
        ("name", "fine"),
        [
            ("text", ("", "x")), ("score", (-1.5, float("nan"))), ("page", ()), ("chunk_index", ()), ("i_start", ()),
            ("i_end", ()), ("heading_path", ((),)), ("metadata", ({1: 2},)), ("spans", ((),)), ("doc_id", ("", "x")),
            ("node_id", ("", "x")), ("collection", ("", "x")), ("score_type", ("", "x")), ("checksum", ("", "x")),
        ],
    )  # fmt: skip
    def test_fields_of_contexts(self, name, fine):
        for value in self.WRONG:
            row = {"text": "hello", "doc_id": "a", "i_start": 0, "i_end": 5, name: value}
            if any(type(value) is type(good) and repr(value) == repr(good) for good in fine):
                assert build_prompt("q", [row]).sources
                continue
            for function in (lambda row: build_prompt("q", [row]), lambda row: fit_context([row], 3)):
                with pytest.raises(InputError):
                    function(row)

    @pytest.mark.parametrize(
        "contexts", [None, 5, "abc", {"text": "x"}, HUGE, [None], [HUGE], ["x"], np.array(3)], ids=kind
    )
    def test_no_contexts(self, contexts):
        with pytest.raises(InputError, match="context"):
            build_prompt("q", contexts)

    def test_a_counter_that_fails(self):
        with pytest.raises(InputError, match="count_tokens fails: TypeError"):
            fit_context(CONTEXTS, 50, count_tokens=lambda: 1)


class TestNotices:
    def test_those_of_the_contexts_are_kept(self):
        given = Candidates(CONTEXTS, notices=["The vector leg failed."])
        assert own(Piece("x [1]"), contexts=given).notices == ["The vector leg failed."]
        assert fit_context(given, 500).notices == ["The vector leg failed."]

    def test_nobody_is_called_nothing(self):
        window = fit_context([{"text": "Open the valve. " * 30}], 40)
        assert window.notices[0].startswith("A chunk without an id is cut to ")
