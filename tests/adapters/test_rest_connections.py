"""Connections that keep a server waiting, by raw sockets against uvicorn with our protocol."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from contextlib import contextmanager

import pytest

uvicorn = pytest.importorskip("uvicorn")
from sqlrag import network  # noqa: E402
from sqlrag.adapters.server import TimedProtocol  # noqa: E402

SECONDS = 0.5
PART = b"x" * 65_536
WHOLE = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
BODY = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n"


class App:
    """Answers at once, after a while at /slow, and with ``parts`` times 64 KiB at /large; it reads no body."""

    parts = 400

    def __init__(self):
        self.ended = threading.Event()

    async def __call__(self, scope, receive, send):
        if scope["path"] == "/slow":
            await asyncio.sleep(3 * SECONDS)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        if scope["path"] == "/large":
            for _ in range(self.parts):
                await send({"type": "http.response.body", "body": PART, "more_body": True})
            self.ended.set()
        await send({"type": "http.response.body", "body": b"done"})


@contextmanager
def running(seconds=SECONDS, most=None):
    """Run a server in a thread and yield its application and a function that connects to it."""
    app = App()
    listener, url = network.listen("127.0.0.1", 0)
    config = uvicorn.Config(
        app, http=TimedProtocol, timeout_keep_alive=seconds, limit_concurrency=most, lifespan="off", log_config=None
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    opened = []

    def connect(sent=b"", room=None):
        connection = socket.socket()
        if room:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        connection.settimeout(20)
        connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        connection.sendall(sent)
        opened.append(connection)
        return connection

    try:
        yield app, connect
    finally:
        for connection in opened:
            connection.close()
        server.should_exit = True
        thread.join(20)
        listener.close()
    assert not thread.is_alive()


@pytest.fixture(scope="module")
def server():
    with running() as found:
        yield found


def rest_of(connection):
    """Return what comes until the server ends the connection."""
    received = b""
    try:
        while part := connection.recv(65_536):
            received += part
    except ConnectionError:
        pass
    return received


@pytest.mark.parametrize("sent", [b"", WHOLE[:20], WHOLE, WHOLE + WHOLE[:20], BODY, BODY + b"x"])
def test_who_keeps_it_waiting_is_ended(server, sent):
    connection = server[1](sent)
    began = time.monotonic()
    received = rest_of(connection)
    assert SECONDS * 0.9 < time.monotonic() - began < 10
    assert received.count(b"done") == sent.count(b"\r\n\r\n")


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n", WHOLE + b"GET / HTTP/1.1\r\n", BODY])
def test_more_of_the_head_or_of_an_unread_body_gives_no_more_time(server, sent):
    connection = server[1](sent)

    def send_on():
        for _ in range(100):
            connection.sendall(b"X" if sent is BODY else b"X: y\r\n")
            time.sleep(SECONDS / 5)

    with pytest.raises(OSError, match=r"pipe|reset|aborted"):
        send_on()


def test_a_request_takes_as_long_as_it_takes(server):
    connection = server[1](WHOLE.replace(b"/", b"/slow", 1))
    assert b"done" in rest_of(connection)


def test_who_does_not_read_holds_nothing_and_who_reads_slowly_gets_all(server):
    app, connect = server
    large = WHOLE.replace(b"/", b"/large", 1)
    silent = connect(large, room=4096)
    assert app.ended.wait(10)  # the answer goes on without its client, who is gone for the server
    app.ended.clear()
    silent.settimeout(0.2)
    connection = connect(large, room=65_536)
    size = 0
    while part := connection.recv(1_000_000):
        size += len(part)
        time.sleep(0.001)
    assert size > App.parts * len(PART)


def test_silent_connections_make_room_for_others():
    with running(seconds=60, most=10) as (_, connect):
        silent = [connect(WHOLE[: number % 2 * 20]) for number in range(30)]
        for _ in range(3):
            assert b"200 OK" in connect(WHOLE).recv(100)
        silent[0].settimeout(5)
        assert rest_of(silent[0]) == b""


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\r\n\r\n", WHOLE.replace(b"HTTP/1.1", b"HTTP/9"), WHOLE[:-2] + b"a b\r\n\r\n"]
)
def test_what_is_no_http_is_a_problem(server, sent):
    received = rest_of(server[1](sent))
    assert received.startswith(b"HTTP/1.1 400 ")
    assert re.search(rb"\r\nX-Request-ID: [0-9a-f]{32}\r\n", received)
    assert b"application/problem+json" in received
