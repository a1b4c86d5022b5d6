"""How much of the time of embedding is the model itself: our embedder beside a bare loop over ONNX Runtime.

python -m tests.bench.embedding [--chunks 256] [--questions 1000] [--rounds 3]

embed_texts: the whole way from texts to checked vectors of unit length. "same runs": ``session.run`` alone, over the
same sorted batches in the same runs and threads, with the token numbers prepared beforehand. "padded": the usual loop,
sorted batches of 32 padded to their longest text, ONNX Runtime with all threads, tokens prepared beforehand as well.
All take turns in one process; each figure is the median of the rounds. A ratio of 1.10 says that ours takes 10 %
longer.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np

from sqlrag.embedders import OnnxEmbedder, embed_texts
from sqlrag.embedders.weights import read_bundle, silent_onnxruntime
from tests.bench.common import MINILM, environment, markdown_table
from tests.bench.corpora import corpus, questions

if TYPE_CHECKING:
    from collections.abc import Callable

BATCH, PADDED_BATCH = 128, 32  # of embed_texts; of the usual loop

Feed = dict[str, "np.ndarray[Any, Any]"]


def session(threads: int) -> Any:
    onnxruntime = silent_onnxruntime()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(read_bundle()[0], options, providers=["CPUExecutionProvider"])


def feed(embedder: OnnxEmbedder, texts: list[str], names: set[str]) -> Feed:
    """Return the input of one run, padded to the longest text."""
    encodings = embedder._model.tokenizer.encode_batch(texts)
    length = max(len(encoding) for encoding in encodings)
    fields = {"input_ids": "ids", "attention_mask": "attention_mask", "token_type_ids": "type_ids"}
    return {
        name: np.array([getattr(e, field) + [0] * (length - len(e)) for e in encodings], dtype=np.int64)
        for name, field in fields.items()
        if name in names
    }


def loops(embedder: OnnxEmbedder, texts: list[str]) -> dict[str, Callable[[], object]]:
    """Return each way of embedding the texts, ready to be called."""
    threads = embedder._threads
    alone, together = session(1), session(threads)
    names = {node.name for node in alone.get_inputs()}
    ordered = sorted(texts, key=len)
    batches = [ordered[start : start + BATCH] for start in range(0, len(ordered), BATCH)]
    runs = [
        [feed(embedder, [batch[position] for position in run], names) for run in embedder._runs(batch)]
        for batch in batches
    ]
    padded = [
        feed(embedder, ordered[start : start + PADDED_BATCH], names) for start in range(0, len(ordered), PADDED_BATCH)
    ]

    def same_runs() -> None:
        for batch in runs:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(lambda inputs: alone.run(None, inputs), batch))

    return {
        "embed_texts": lambda: embed_texts(embedder, texts, kind="document"),
        "same runs": same_runs,
        "padded": lambda: [together.run(None, inputs) for inputs in padded],
    }


def measure(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Return the median seconds of each way."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, way in ways.items():
            began = time.perf_counter()
            way()
            if turn > 0:  # the first round warms up
                seconds[name].append(time.perf_counter() - began)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, default=256)
    parser.add_argument("--questions", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()

    embedder = OnnxEmbedder(MINILM)
    chunks = corpus(24_000)[0]
    asked = questions()[0]
    texts = {
        "chunks": chunks[:: len(chunks) // arguments.chunks][: arguments.chunks],
        "questions": (asked * (arguments.questions // len(asked) + 1))[: arguments.questions],
    }
    print(
        f"{environment()}, ONNX Runtime {silent_onnxruntime().__version__}, {MINILM} int8, {embedder._threads} threads"
    )
    rows = []
    for what, some in texts.items():
        tokens = statistics.mean(len(embedder._model.tokenizer.encode(text)) for text in some)
        took = measure(loops(embedder, some), arguments.rounds)
        ratios = [f"{took['embed_texts'] / took[way]:.2f}" for way in ("same runs", "padded")]
        rows.append(
            [f"{len(some):,} {what}", f"{tokens:.0f}", *(f"{len(some) / s:,.0f}" for s in took.values()), *ratios]
        )
    header = ["texts", "mean tokens", "embed_texts, texts/s", "same runs", "padded"]
    print(markdown_table([*header, "ratio to same runs", "ratio to padded"], rows))


if __name__ == "__main__":
    main()
