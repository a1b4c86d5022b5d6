"""A server on this machine that plays OpenAI and Ollama, and goes wrong on request."""

from __future__ import annotations

import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from sqlrag.embedders import HashingEmbedder
from tests.support.loopback import served

KEY = "sk-test-0123456789abcdef"


class Answer(Exception):  # noqa: N818 - it is no error
    """An answer in place of vectors."""

    def __init__(self, status, body="", **headers):
        self.status = status
        self.body = body
        self.headers = headers
        super().__init__(status)


class EmbeddingServer:
    """Answers with the hashing vectors of ``dimensions``.

    ``faults`` are functions that get the texts of a request, and the number of the request counted from 1; each may
    raise :class:`Answer`, wait, or return what is to be done to the vectors. ``requests`` holds the body of each
    request for vectors, ``headers`` the headers.
    """

    def __init__(self, dimensions=64, **shown):
        self.model = HashingEmbedder(f"hashing-{dimensions}")
        self.faults = []
        self.requests = []
        self.headers = []
        self.shown = shown
        self.float_encoding = True
        self.index = lambda places: places
        self._lock = threading.Lock()

    @property
    def inputs(self):
        """All texts that were asked for, in order."""
        return [text for body in self.requests for text in body["input"]]

    @property
    def sizes(self):
        return [len(body["input"]) for body in self.requests]

    def answer(self, path, body, headers):
        if path == "/api/show":
            if self.shown.get("missing"):
                raise Answer(404, {"error": f"model '{body['model']}' not found"})
            return {"modelfile": "FROM /models/blobs/sha256-" + "ab" * 32, "model_info": {}, **self.shown}
        with self._lock:
            self.requests.append(body)
            self.headers.append(headers)
            number = len(self.requests)
        texts = body["input"]
        assert {type(texts), *map(type, texts)} == {list, str}, texts
        if path.startswith("/v1") and "encoding_format" in body and not self.float_encoding:
            raise Answer(400, {"error": {"message": "unknown field: encoding_format"}})
        model = HashingEmbedder(f"hashing-{body['dimensions']}") if body.get("dimensions") else self.model
        vectors = model.embed(texts, kind="document").tolist()
        for fault in self.faults:
            changed = fault(texts, number)
            vectors = vectors if changed is None else changed(vectors)
        if path == "/api/embed":
            return {"model": body["model"], "embeddings": vectors}
        assert path == "/v1/embeddings", path
        places = self.index(list(range(len(vectors))))
        rows = [{"object": "embedding", "index": place, "embedding": vectors[place]} for place in places]
        return {"object": "list", "data": rows, "model": body["model"]}


@contextmanager
def serving(server):
    """Run the server; yield its address."""
    ended = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            try:
                status, answer, headers = (
                    200,
                    server.answer(self.path, body, {k.lower(): v for k, v in self.headers.items()}),
                    {},
                )
            except Answer as given:
                status, answer, headers = given.status, given.body, given.headers
            content = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            if ended.is_set():
                return
            try:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True  # the client did not wait

        def do_GET(self):
            assert self.path == "/api/tags", self.path
            models = [{"model": name} for name in ("nomic-embed-text:latest", "all-minilm:latest")]
            content = json.dumps({"models": models}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with served(Handler, ended) as address:
        yield address


# Faults.


def at_most(number, message="batch size is invalid, it should not be larger than {}"):
    """Refuse more texts in one request."""

    def fault(texts, _):
        if len(texts) > number:
            raise Answer(400, {"error": {"message": message.format(number)}})

    return fault


def no_longer_than(characters, status=400, message="the input length exceeds the context length"):
    """Refuse longer texts."""

    def fault(texts, _):
        if any(len(text) > characters for text in texts):
            raise Answer(status, {"error": message})

    return fault


def poisoned(word, status=500, **headers):
    """Fail wherever a text has a word."""

    def fault(texts, _):
        if any(word in text for text in texts):
            raise Answer(status, {"error": {"message": "internal error"}}, **headers)

    return fault


def answers(*statuses, **headers):
    """Answer the first requests with these statuses, 200 being vectors."""

    def fault(_, number):
        status = statuses[number - 1] if number <= len(statuses) else 200
        if status != 200:
            raise Answer(status, {"error": {"message": f"status {status}"}}, **headers)

    return fault


def down_after(number):
    """Answer so many requests, and none of the others."""

    def fault(_, count):
        if count > number:
            raise Answer(503, {"error": {"message": "overloaded"}})

    return fault


def hangs(seconds):
    """Answer too late."""
    return lambda *_: time.sleep(seconds)


def wants(server, key):
    """Refuse requests without the right key; the refusal repeats what was sent."""

    def fault(*_):
        given = server.headers[-1].get("authorization", "")
        if given != f"Bearer {key}":
            raise Answer(401, {"error": {"message": f"Incorrect API key provided: {given.removeprefix('Bearer ')}."}})

    return fault


def changed(change):
    """Do something to the vectors of every request."""
    return lambda *_: change
