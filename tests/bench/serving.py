"""How a server does under many clients: real ``sqlrag serve`` on the handbook, real model, requests without a pause.

    python tests/bench/serving.py [--clients 50] [--seconds 60] [--threads N] [--write] [--vectors]
                                  [--memory MB | --postgres URL] [--db FILE]

Clients ask one question after another over connections that stay open: of ten, seven in hybrid mode, two by words and
one by meaning; every third question is one that was asked before. With ``--vectors`` each comes with its vector, so
that nothing is embedded. ``--memory 0`` has the server answer by SQL alone; with ``--postgres`` the file is pushed to a
server, into a schema sqlrag_serving that is removed afterwards, and served from there. ``--db`` is another file.

With ``--write`` four more clients upload documents, new ones and new versions of their own, and another one changes
files of a folder and has it updated. Every fifth question is then for a document whose change had been confirmed
before: an answer without it, or with an older version, is wrong. At the end the server is stopped, and each confirmed
version that is not in the file, word for word and found by its word, is lost.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

import sqlrag  # noqa: E402
from tests.support.handbook import search_file  # noqa: E402

UPLOADERS = 4
ROUTES = ["/hybrid_query"] * 7 + ["/lexical_query"] * 2 + ["/vector_query"]


def questions() -> list[str]:
    lines = (ROOT / "data" / "questions.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


class Connection:
    """A connection to the server that stays open."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.writer = None

    async def ask(self, path: str, body: bytes, kind: str = "application/json") -> tuple[str, bytes]:
        """Return status and body of an answer to a POST."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode() + body)
        header = await self.reader.readuntil(b"\r\n\r\n")
        length = int(header.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        return header.split(b" ")[1].decode(), await self.reader.readexactly(length)


class Load:
    """What the clients share: what they ask, what has been confirmed, and what came of it."""

    def __init__(
        self, port: int, until: float, folder: Path | None, vectors: dict[str, list[float]] | None = None
    ) -> None:
        self.port, self.until, self.folder, self.vectors = port, until, folder, vectors or {}
        self.asked = questions()
        self.times: list[float] = []
        self.answers: Counter = Counter()
        self.wrong: list[str] = []
        self.confirmed: dict[str, int] = {}
        self.changes = 0

    async def client(self, seed: int) -> None:
        """Ask until the time is over; an answer that is not 200, or no answer, is counted by what it was."""
        luck = random.Random(seed)
        connection = Connection(self.port)
        for number in itertools.count():
            question, path = luck.choice(self.asked), luck.choice(ROUTES)
            given = {"query_vector": self.vectors[question]} if self.vectors and path != "/lexical_query" else {}
            if number % 3:
                question += f" ({seed}-{number})"  # never asked before
            sought = luck.choice(list(self.confirmed)) if self.confirmed and number % 5 == 0 else None
            least = self.confirmed.get(sought, 0)
            if sought is not None:
                question, path, given = word_of(sought), "/lexical_query", {}
            began = time.perf_counter()
            if began >= self.until:
                return
            asked = json.dumps({"query_text": question, "top_k": 5, **given}).encode()
            status, body = await connection.ask(path, asked)
            self.times.append(time.perf_counter() - began)
            self.answers[status] += 1
            if sought is not None and status == "200":
                found = [row["text"] for row in json.loads(body)["results"] if row["doc_id"] == sought]
                versions = [int(text.rsplit("version", 1)[1]) for text in found]
                if len(versions) != 1 or versions[0] < least:
                    self.wrong.append(f"{sought}: version {versions} in place of {least}")

    async def uploader(self, seed: int) -> None:
        """Upload three documents at a time, each of twelve names again and again."""
        connection = Connection(self.port)
        for number in itertools.count():
            if time.perf_counter() >= self.until:
                return
            names = [f"upload{seed}n{(number * 3 + place) % 12}.md" for place in range(3)]
            head = '--b\r\nContent-Disposition: form-data; name="files"; filename='
            parts = "".join(f'{head}"{name}"\r\n\r\n{text_of(name, number)}\r\n' for name in names)
            status, body = await connection.ask(
                "/documents", f"{parts}--b--\r\n".encode(), "multipart/form-data; boundary=b"
            )
            self.confirm(status, body, names, number)

    async def updater(self) -> None:
        """Change two files of the folder at a time, and have the server read it."""
        connection = Connection(self.port)
        for number in itertools.count():
            if time.perf_counter() >= self.until:
                return
            names = [f"folder{(number * 2 + place) % 10}.md" for place in range(2)]
            for name in names:
                (self.folder / name).write_text(text_of(name, number))
            status, body = await connection.ask("/update_embeddings", b'{"prune": false}')
            self.confirm(status, body, names, number)

    def confirm(self, status: str, body: bytes, names: list[str], number: int) -> None:
        self.answers[f"{status} to a change" if status != "200" else status] += 1
        report = json.loads(body)
        if status == "200":
            self.changes += 1
            if missing := sorted(set(names) - {*report["added"], *report["changed"]}):
                self.wrong.append(f"a change without {missing}: {report}")
            self.confirmed.update(dict.fromkeys(names, number))

    async def run(self, clients: int) -> float:
        """Run all clients; return the seconds that they took."""
        began = time.perf_counter()
        work = [self.client(seed) for seed in range(clients)]
        if self.folder is not None:
            work += [*(self.uploader(seed) for seed in range(UPLOADERS)), self.updater()]
        for failure in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(failure, BaseException):
                self.answers[repr(failure)] += 1
        self.times.sort()
        return time.perf_counter() - began

    def lost(self, file: Path) -> list[str]:
        """Return which of the confirmed versions are not in the file."""
        lost = []
        with sqlrag.Store(file) as store:
            for name, number in sorted(self.confirmed.items()):
                kept = store.sources([name]).get(name, {}).get("text")
                found = [row["doc_id"] for row in store.lexical_query(word_of(name))]
                if kept != text_of(name, number) or found != [name]:
                    lost.append(f"{name}: {kept!r} in place of version {number}; found: {found}")
        return lost


def word_of(name: str) -> str:
    """Return the word that is in no other document."""
    return f"word{name.removesuffix('.md')}word"


def text_of(name: str, number: int) -> str:
    return f"# {word_of(name)}\n\nA text of {word_of(name)}, version{number}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--vectors", action="store_true")
    parser.add_argument("--memory", type=int)
    parser.add_argument("--postgres", metavar="URL")
    parser.add_argument("--db", type=Path)
    given = parser.parse_args()
    if given.write and (given.postgres or given.db):
        parser.error("--write changes a file of its own")
    with tempfile.TemporaryDirectory() as folder:
        file = given.db or search_file(Path(folder))
        place = str(file)
        if given.postgres:
            place = f"{given.postgres}{'&' if '?' in given.postgres else '?'}schema=sqlrag_serving"
            sqlrag.PostgresStore.drop(place)
            sqlrag.push(file, place, progress="off")
        command = [sys.executable, "-m", "sqlrag", "serve", place, "--port", "0"]
        docs = Path(folder) / "docs" if given.write else None
        if docs is not None:
            docs.mkdir()
            command += ["--write", "--input-dir", str(docs)]
        if given.memory is not None:
            command += ["--memory", str(given.memory)]
        vectors = {}
        if given.vectors:
            with sqlrag.Store(file) as store:
                vectors = {question: store.query_vector(question).tolist() for question in questions()}
        if given.threads:
            command += ["--threads", str(given.threads)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as server:
            try:
                port = int(server.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))
                asyncio.run(Load(port, time.perf_counter() + 1, None).run(2))  # the model is loaded
                load = Load(port, time.perf_counter() + given.seconds, docs, vectors)
                seconds = asyncio.run(load.run(given.clients))
                memory = Path(f"/proc/{server.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
            finally:
                server.terminate()
                code = server.wait(60)
        lost = load.lost(file)
        with sqlrag.open_store(place) as store:
            problems = [str(problem) for problem in store.check()]
        if given.postgres:
            sqlrag.PostgresStore.drop(place)
    times, answers = load.times, load.answers
    cpu = next(
        (line.partition(": ")[2] for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line), ""
    )
    names = ("duckdb", "fastapi", "uvicorn", "onnxruntime")
    print(f"{platform.platform()}, {cpu}, {os.cpu_count()} cores, Python {platform.python_version()}")
    print(", ".join(f"{name} {version(name)}" for name in names))
    print(
        f"{given.clients} clients for {seconds:.0f} s: {len(times)} requests, answers {dict(answers)}, exit code {code}"
    )
    p50, p95, p99 = (times[int(len(times) * share)] * 1000 for share in (0.5, 0.95, 0.99))
    print(
        f"{len(times) / seconds:.0f} requests/s; p50 {p50:.0f} ms, p95 {p95:.0f} ms, p99 {p99:.0f} ms, "
        f"longest {times[-1] * 1000:.0f} ms"
    )
    print(f"greatest memory of the server {int(memory) / 1024:.0f} MB")
    if given.write:
        print(
            f"{load.changes} changes, {len(load.confirmed)} documents confirmed: {len(load.wrong)} wrong answers, "
            f"{len(lost)} documents lost, {len(problems)} problems of the file"
        )
        print("\n".join([*load.wrong[:5], *lost[:5], *problems[:5]]))
    if set(answers) != {"200"} or code or load.wrong or lost or problems:
        sys.exit(1)


if __name__ == "__main__":
    main()
