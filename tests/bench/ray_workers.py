"""How builds on Ray scale where embedding is the bottleneck, and what a lost node costs.

python -m tests.bench.ray_workers [--workers 1,4] [--documents 256] [--milliseconds 40] [--lost]

The embedder sleeps so long for each text, as one that waits for a service does, so that the processors of this machine
limit nothing. Counted is from the first call of the embedder to the end of the last; Ray and its workers, each of which
imports sqlrag, take some seconds to start. With ``--lost`` the workers are on two nodes of one cluster on
this machine (Ray's own ``Cluster``), of which one is killed when a third of the documents has been embedded; its work
is done again by the other, and the file is compared with that of the local engine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import duckdb

from sqlrag.embedders import HashingEmbedder
from sqlrag.ingest.build import prepare_file
from tests.bench.common import environment, markdown_table


class Sleeping(HashingEmbedder):
    """Waits before it answers, and adds a line to a file for each call: when it began and ended, and its texts."""

    def __init__(self, seconds: float, calls: Path) -> None:
        super().__init__("hashing-64")
        self.seconds, self.calls = seconds, calls

    def embed(self, texts: Any, *, kind: Any) -> Any:
        began = time.time()
        time.sleep(self.seconds * len(texts))
        with self.calls.open("a") as file:
            file.write(f"{began} {time.time()} {len(texts)}\n")
        return super().embed(texts, kind=kind)


def rows(path: Path) -> list[tuple[Any, ...]]:
    """Return the chunks of a file."""
    with duckdb.connect(path, read_only=True) as con:
        return con.execute("SELECT node_id, text, i_start, embedding FROM documents ORDER BY rid").fetchall()


def calls_in(file: Path) -> list[tuple[float, float, int]]:
    """Return begin, end and texts of each call so far."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(float(began), float(ended), int(texts)) for began, ended, texts in map(str.split, lines)]


def built(folder: Path, name: str, seconds: float, **options: Any) -> tuple[float, int, Path]:
    """Build a file; return the seconds of embedding, the texts and its path."""
    file = folder / f"{name}.calls"
    embedder = Sleeping(seconds, file)
    path = prepare_file(folder / "docs", folder / f"{name}.duckdb", embedder=embedder, progress="off", **options).path
    calls = [call for call in calls_in(file) if call[2] > 1]  # the first is of one text, which asks for dimensions
    took = max(ended for _, ended, _ in calls) - min(began for began, _, _ in calls)
    return took, sum(texts for _, _, texts in calls), path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", default="1,4")
    parser.add_argument("--documents", type=int, default=256)
    parser.add_argument("--milliseconds", type=float, default=40)
    parser.add_argument("--lost", action="store_true")
    given = parser.parse_args()
    import ray
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    seconds = given.milliseconds / 1000
    table = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "docs").mkdir()
        for number in range(given.documents):
            text = "\n\n".join(f"Paragraph {part} of {number}. " + "word " * 150 for part in range(4))
            (folder / "docs" / f"d{number:04}.md").write_text(text)
        *_, local = built(folder, "local", 0.0)
        whole = rows(local)
        first = 0.0
        for workers in map(int, given.workers.split(",")):
            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1}) if given.lost else None
            node = cluster.add_node(num_cpus=workers) if cluster else None
            alone = {"address": "local", "num_cpus": workers, "object_store_memory": 2**27}
            where: dict[str, Any] = {"address": cluster.address} if cluster else alone
            ray.init(**where, log_to_driver=False, logging_level="ERROR")
            try:
                name = f"ray{workers}"
                if node is not None:
                    wanted = len(whole) // 3
                    threading.Thread(target=lose, args=(cluster, node, folder / f"{name}.calls", wanted)).start()
                took, texts, path = built(folder, name, seconds, engine="ray", workers=workers)
            finally:
                ray.shutdown()
                if cluster:
                    cluster.shutdown()
            first = first or took
            same = "yes" if rows(path) == whole else "NO"
            table.append([str(workers), f"{took:.1f} s", f"{first / took:.2f} x", f"{texts:,}", same])
    print(f"{environment()}; {len(whole)} chunks, {given.milliseconds:g} ms a text\n")
    print(markdown_table(["workers", "embedding", "faster", "texts", "as the local engine"], table))


def lose(cluster: Any, node: Any, calls: Path, wanted: int) -> None:
    """Kill a node once so many texts have been embedded."""
    while sum(texts for _, _, texts in calls_in(calls)) < wanted:
        time.sleep(0.05)
    cluster.remove_node(node, allow_graceful=False)


if __name__ == "__main__":
    main()
