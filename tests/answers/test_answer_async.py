"""The coroutine of ``answer``: events as they come, and nothing that stays when nobody waits any more."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from sqlrag import (
    Answer,
    Candidate,
    InputError,
    NotFoundError,
    OpenAIChat,
    ProviderError,
    RetrievePlan,
    Store,
    aanswer,
    answer,
    arerank,
    aretrieve,
    metrics,
    rerank,
    retrieve,
)
from sqlrag.answers.answer import AnswerSettings
from sqlrag.answers.chat_models import Piece
from sqlrag.telemetry import current_request
from tests.support.chat_server import ChatServer, Status, serving
from tests.support.helpers import build

PAGES = {"pump_md": "# Pump\n\nOpen the red valve first.\n", "oven_md": "# Oven\n\nBread bakes for forty minutes.\n"}
QUESTION = "Which valve comes first?"


@pytest.fixture(scope="module")
def kb(tmp_path_factory):
    return build(tmp_path_factory.mktemp("kb"), **PAGES)


@pytest.fixture(autouse=True)
def nothing_stays(monkeypatch):
    """No thread of an answer and no socket is left after a test; both may take a moment."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    before = open_sockets()
    yield
    assert within(2, lambda: threads() == []), threads()
    assert within(2, lambda: open_sockets() <= before), open_sockets()


def threads():
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("sqlrag-answer")]


def open_sockets():
    """The sockets of this process, where the system has a list of them."""
    folder = Path("/proc/self/fd")
    links = []
    for file in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):
            links.append(str(file.readlink()))
    return {link for link in links if link.startswith("socket:")}


def within(seconds, holds):
    end = time.monotonic() + seconds
    while not holds() and time.monotonic() < end:
        time.sleep(0.01)
    return holds()


def run(work):
    """Run a coroutine function of the base_url of a server; return what it returns and the seconds that it took.

    Its threads have to end while the server is still there, since the end of a server wakes whoever waits for it.
    """

    def with_server(server, *arguments):
        with serving(server) as url:
            began = time.monotonic()
            found = asyncio.run(work(url, *arguments))
            seconds = time.monotonic() - began
            gc.collect()
            assert within(2, lambda: threads() == []), threads()
            return found, seconds

    return with_server


def ask(kb, url, **more):
    given = {"chat_model": "tiny", "base_url": url, "max_retries": 0, "timeout": 60}
    return aanswer(more.pop("question", QUESTION), kb, **{**given, **more})


async def first(events, count):
    return [await anext(events) for _ in range(count)]


def test_what_type_checkers_know_is_the_signature():
    told = {*AnswerSettings.__annotations__, "question", "db_path", "chat_model", "stream"}
    assert told == set(inspect.signature(answer).parameters) == set(inspect.signature(aanswer).parameters)


class TestWhole:
    @pytest.mark.slow
    def test_it_is_what_the_function_gives(self, kb):
        @run
        async def found(url):
            return await ask(kb, url), await asyncio.to_thread(
                answer, QUESTION, kb, chat_model="tiny", base_url=url, max_retries=0
            )

        (one, other), _ = found(ChatServer("The red valve [1]."))
        assert isinstance(one, Answer)
        for name in ("text", "sources", "citations", "finish_reason", "usage", "notices", "queries"):
            assert getattr(one, name) == getattr(other, name), name

    @pytest.mark.slow
    def test_errors_come_through(self, kb, tmp_path):
        @run
        async def found(url):
            with pytest.raises(InputError, match="blank"):
                await ask(kb, url, question=" ")
            with pytest.raises(NotFoundError):
                await ask(tmp_path / "missing.duckdb", url, stream=True)
            with pytest.raises(ProviderError, match="HTTP 500"):
                await ask(kb, url, strict=True)
            return (await ask(kb, url)).error

        error, _ = found(ChatServer(all=Status(500)))
        assert "HTTP 500" in error

    @pytest.mark.slow
    def test_the_loop_goes_on_meanwhile(self, kb):
        @run
        async def ticks(url):
            task, count = asyncio.create_task(ask(kb, url, timeout=0.5)), 0
            while not task.done():
                await asyncio.sleep(0.01)
                count += 1
            return count

        assert ticks(ChatServer(all="hang"))[0] > 10

    @pytest.mark.slow
    def test_many_at_once_of_one_store_and_one_model(self, kb):
        @run
        async def found(url):
            with Store(kb) as store:
                model = OpenAIChat("tiny", base_url=url, max_retries=0)
                answers = await asyncio.gather(*(aanswer(QUESTION, store, chat_model=model) for _ in range(20)))
                model.close()
            return {one.text for one in answers}, len({one.request_id for one in answers})

        assert found(ChatServer("The red valve [1]."))[0] == ({"The red valve [1]."}, 20)

    @pytest.mark.slow
    @pytest.mark.parametrize("retries", [0, 2])
    def test_a_cancelled_one_ends_its_request(self, kb, retries):
        @run
        async def found(url, server):
            task = asyncio.create_task(ask(kb, url, max_retries=retries))
            while not server.requests:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        server = ChatServer(all="hang")
        _, seconds = found(server, server)
        assert seconds < 5
        assert len(server.requests) == 1  # it was not sent again

    @pytest.mark.slow
    def test_a_time_out_of_the_callers_own(self, kb):
        @run
        async def found(url):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(ask(kb, url), 0.5)

        before = metrics()
        assert found(ChatServer(all="hang"))[1] < 5
        assert within(2, lambda: metrics()["failed_answers"] == before["failed_answers"] + 1)  # abandoned
        assert metrics()["failed_model_calls"] == before["failed_model_calls"]

    def test_cancelled_while_the_question_is_worded_anew(self, kb):
        @run
        async def found(url, server):
            task = asyncio.create_task(ask(kb, url, expand="llm", stream=True))
            while not server.requests:  # the first call of a process loads modules meanwhile
                await asyncio.sleep(0.01)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(task, 0.5)

        server = ChatServer(all="hang")
        assert found(server, server)[1] < 5
        assert len(server.requests) == 1


class TestStream:
    @pytest.mark.slow
    def test_the_events_are_those_of_the_function(self, kb):
        @run
        async def found(url):
            events = await ask(kb, url, stream=True, request_id="r-1")
            assert inspect.isasyncgen(events)
            return [event async for event in events]

        events, _ = found(ChatServer("The red valve [1]."))
        assert [event.type for event in events] == ["sources", "text", "text", "text", "text", "usage", "done"]
        assert {event.request_id for event in events} == {"r-1"}
        assert events[-1].answer.text == "".join(event.text for event in events) == "The red valve [1]."

    @pytest.mark.slow
    def test_text_comes_as_it_is_made_and_closing_ends_the_connection(self, kb):
        @run
        async def found(url):
            events = await ask(kb, url, stream=True)
            texts = [event.text for event in await first(events, 4)]  # the server has stopped here, and says no more
            await events.aclose()
            with pytest.raises(StopAsyncIteration):
                await anext(events)
            return texts

        texts, seconds = found(ChatServer("one two three four [1]", all="stalls"))
        assert texts == ["", "one", " two", " three"]
        assert seconds < 5

    @pytest.mark.slow
    @pytest.mark.parametrize(("fault", "count"), [("hang", 1), ("stalls", 4)])
    def test_cancelling_ends_the_connection(self, kb, fault, count):
        """In the middle of a step: the thread waits for the server, which says nothing for twenty seconds."""

        @run
        async def found(url, server):
            async def read():
                events = await ask(kb, url, stream=True, max_retries=2)
                while True:
                    seen.append(await anext(events))

            seen = []
            task = asyncio.create_task(read())
            while len(seen) < count or not server.requests:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            return seen

        server = ChatServer("one two three four [1]", all=fault)
        seen, seconds = found(server, server)
        assert len(seen) == count
        assert seconds < 5

    @pytest.mark.slow
    def test_leaving_the_loop_early(self, kb):
        @run
        async def found(url):
            async for event in await ask(kb, url, stream=True):
                if event.text:
                    break
            return event.text

        assert found(ChatServer("one two three four [1]", all="stalls"))[0] == "one"

    @pytest.mark.slow
    def test_an_iterator_that_is_never_used(self, kb):
        @run
        async def found(url):
            await ask(kb, url, stream=True)

        server = ChatServer()
        found(server)
        gc.collect()
        assert server.requests == []

    @pytest.mark.slow
    def test_a_stream_that_breaks(self, kb):
        @run
        async def found(url):
            return [event async for event in await ask(kb, url, stream=True)]

        events, _ = found(ChatServer("one two three four", all="broken stream"))
        assert [event.type for event in events] == ["sources", "text", "text", "text", "error", "done"]

    @pytest.mark.slow
    def test_one_that_is_given_up_leaves_the_others(self, kb):
        """They share a model: only the connection of the one ends."""

        @run
        async def found(url):
            model = OpenAIChat("tiny", base_url=url, max_retries=0)
            one, other = [await aanswer(QUESTION, kb, chat_model=model, stream=True) for _ in range(2)]
            await first(one, 2)
            await first(other, 2)
            await one.aclose()
            rest = [event async for event in other]
            model.close()
            return rest[-1].answer

        answered, _ = found(ChatServer("The red valve [1]."))
        assert (answered.text, answered.error) == ("The red valve [1].", None)

    def test_a_model_of_ones_own_is_closed_in_its_thread(self, kb):
        class Parrot:
            model_name = "parrot"

            def chat(self, messages, **options):
                try:
                    yield Piece("one ")
                    yield Piece("two [1]", "stop")
                finally:
                    closed.append(threading.current_thread().name)

        async def main():
            events = await aanswer(QUESTION, kb, chat_model=Parrot(), stream=True)
            await first(events, 2)
            await events.aclose()

        closed = []
        asyncio.run(main())
        assert within(2, lambda: closed)
        assert closed[0].startswith("sqlrag-answer")

    def test_a_model_of_ones_own_is_closed_after_its_step(self, kb):
        class Slow:
            model_name = "slow"
            closed = threading.Event()

            def chat(self, messages, **options):
                try:
                    yield Piece("one ")
                    time.sleep(0.3)
                    yield Piece("two [1]", "stop")
                finally:
                    self.closed.set()

        async def main():
            events = await aanswer(QUESTION, kb, chat_model=Slow(), stream=True)
            await first(events, 2)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(anext(events), 0.05)
            return Slow.closed.is_set()

        assert asyncio.run(main()) is False  # the task did not wait for it
        assert Slow.closed.wait(2)

    def test_the_request_is_known_in_every_step(self):
        class Elsewhere:
            def retrieve(self, query, plan, *, query_vector=None):
                seen.append(current_request())
                return [Candidate("a.md", 0, "text", 1.0)]

        class Parrot:
            model_name = "parrot"

            def chat(self, messages, *, request_id, **options):
                seen.append(request_id)
                yield Piece("x [1]", "stop")

        async def main():
            events = await aanswer("what?", Elsewhere(), chat_model=Parrot(), stream=True, request_id="r-7")
            return [event.type async for event in events], current_request()

        seen = []
        assert asyncio.run(main()) == (["sources", "text", "done"], None)
        assert seen == ["r-7", "r-7"]


class TestBlocks:
    def test_retrieve_and_rerank(self, kb):
        def scorer(question, texts):
            return [text.count("a") for text in texts]

        async def main():
            with Store(kb) as store:
                found = await aretrieve("valve", RetrievePlan(k=2), store)
                return found, await arerank("valve", found, scorer), retrieve("valve", RetrievePlan(k=2), store)

        found, ranked, direct = asyncio.run(main())
        assert found == direct != []
        assert ranked == rerank("valve", direct, scorer)
