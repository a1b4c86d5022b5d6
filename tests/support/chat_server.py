"""A server on this machine that plays OpenAI's chat completions, and goes wrong on request."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from tests.support.loopback import served

KEY = "sk-test-0123456789abcdef"
USAGE = {"prompt_tokens": 120, "completion_tokens": 7, "total_tokens": 127}


class Status(Exception):  # noqa: N818 - it is no error of the test
    """Answer a request with this HTTP status."""

    def __init__(self, status, message="it went wrong", body=None, **headers):
        self.status = status
        self.body = body if body is not None else json.dumps({"error": {"message": message}})
        self.headers = headers
        super().__init__(status)


class ChatServer:
    """Answers each request with ``reply``, a text or a function from the body of the request to a text.

    ``faults`` maps the number of a request, counted from 1, or "all", to a fault: an instance of :class:`Status`, or
    the name of one of the faults below. ``requests`` holds the bodies of all requests, ``headers`` their headers.
    """

    def __init__(self, reply="The red valve comes first [1].", **faults):
        self.reply = reply
        self.faults = faults
        self.finish_reason = "stop"
        self.usage = USAGE
        self.requests = []
        self.headers = []
        self.ended = threading.Event()
        self._lock = threading.Lock()

    def fault_of(self, number):
        return self.faults.get(f"request_{number}") or self.faults.get("all")

    def took(self, body, headers):
        with self._lock:
            self.requests.append(body)
            self.headers.append({name.lower(): value for name, value in headers.items()})
            return self.fault_of(len(self.requests))

    def text(self, body):
        return self.reply(body) if callable(self.reply) else self.reply


def whole(server, body, fault):
    """Return the body of an answer that is not streamed."""
    if fault == "invalid json":
        return '{"choices": [{"mess'
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "" if fault == "no text" else server.text(body)},
        "finish_reason": server.finish_reason,
    }
    choices = [] if fault == "empty choice" else [choice]
    return json.dumps({**_head(body, "chat.completion"), "choices": choices, "usage": server.usage})


def chunks(server, body, fault):
    """Yield the events of an answer that is streamed; None is where the connection breaks."""
    if fault == "invalid json":
        yield '{"choices": [{"del'
        return
    yield _chunk(body, {"role": "assistant", "content": ""})
    words = [] if fault in ("no text", "empty choice") else server.text(body).split(" ")
    for place, word in enumerate(words):
        if place == 3 and fault in ("broken stream", "ends early", "error in stream", "stalls"):
            yield {"broken stream": None, "ends early": "", "stalls": "stalls"}.get(
                fault, json.dumps({"error": {"message": "out of memory", "type": "server_error"}})
            )
            return
        yield _chunk(body, {"content": word if place == 0 else f" {word}"})
    if fault != "empty choice":
        yield _chunk(body, {}, server.finish_reason)
    if body.get("stream_options", {}).get("include_usage"):
        yield json.dumps({**_head(body, "chat.completion.chunk"), "choices": [], "usage": server.usage})
    yield "[DONE]"


def _head(body, kind):
    return {"id": "chatcmpl-1", "object": kind, "created": 0, "model": body["model"]}


def _chunk(body, delta, finish=None):
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({**_head(body, "chat.completion.chunk"), "choices": [choice]})


@contextmanager
def serving(server):
    """Run the server; yield its base_url."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            assert self.path == "/v1/chat/completions", self.path
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            fault = server.took(body, self.headers)
            try:
                if fault == "hang":
                    server.ended.wait(20)
                elif isinstance(fault, Status):
                    self.answer(fault.status, fault.body, fault.headers)
                elif fault == "html":
                    self.answer(200, "<html>a proxy's page</html>", {"content_type": "text/html"})
                elif body.get("stream"):
                    self.stream(body, fault)
                else:
                    self.answer(200, whole(server, body, fault), {})
            except OSError:
                self.close_connection = True  # the client did not wait

        def answer(self, status, text, headers):
            content = text.encode()
            self.send_response(status)
            for name, value in {"content_type": "application/json", **headers}.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def stream(self, body, fault):
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for event in chunks(server, body, fault):
                if event is None:
                    self.close_connection = True
                    return
                if event == "stalls":
                    server.ended.wait(20)
                    return
                if event:
                    content = f"data: {event}\n\n".encode()
                    self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")

        def log_message(self, *_):
            pass

    with served(Handler, server.ended) as address:
        yield f"{address}/v1"
