"""How a server does under many clients: real ``sqlrag serve`` on the handbook, real model, requests without a pause.

    python tests/bench/serving.py [--clients 50] [--seconds 60] [--threads N]

Clients ask one question after another over connections that stay open: of ten, seven in hybrid mode, two by words and
one by meaning; every third question is one that was asked before.
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
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from handbook import search_file  # noqa: E402

ROUTES = ["/hybrid_query"] * 7 + ["/lexical_query"] * 2 + ["/vector_query"]


def questions() -> list[str]:
    lines = (ROOT / "data" / "questions.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


async def client(port: int, asked: list[str], seed: int, until: float, times: list[float], answers: Counter) -> None:
    """Ask until the time is over; an answer that is not 200, or no answer, is counted by what it was."""
    luck = random.Random(seed)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in itertools.count():
        question = luck.choice(asked)
        if number % 3:
            question += f" ({seed}-{number})"  # never asked before
        body = json.dumps({"query_text": question, "top_k": 5}).encode()
        head = (
            f"POST {luck.choice(ROUTES)} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        began = time.perf_counter()
        if began >= until:
            break
        writer.write(head.encode() + body)
        header = await reader.readuntil(b"\r\n\r\n")
        length = int(header.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        times.append(time.perf_counter() - began)
        answers[header.split(b" ")[1].decode()] += 1
    writer.close()


async def load(port: int, clients: int, seconds: float) -> tuple[list[float], Counter, float]:
    times: list[float] = []
    answers: Counter = Counter()
    began = time.perf_counter()
    asked = questions()
    work = [client(port, asked, seed, began + seconds, times, answers) for seed in range(clients)]
    for failure in await asyncio.gather(*work, return_exceptions=True):
        if isinstance(failure, BaseException):
            answers[repr(failure)] += 1
    return sorted(times), answers, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = search_file(Path(folder))
        command = [sys.executable, "-m", "sqlrag", "serve", str(file), "--port", "0"]
        if given.threads:
            command += ["--threads", str(given.threads)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        ) as server:
            try:
                port = int(server.stdout.readline().rsplit(":", 1)[1].strip().strip("/"))
                asyncio.run(load(port, 2, 1))  # the model is loaded
                times, answers, seconds = asyncio.run(load(port, given.clients, given.seconds))
                memory = Path(f"/proc/{server.pid}/status").read_text().partition("VmHWM:")[2].split()[0]
            finally:
                server.terminate()
                code = server.wait(60)
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
    if set(answers) != {"200"} or code:
        sys.exit(1)


if __name__ == "__main__":
    main()
