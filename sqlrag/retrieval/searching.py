"""A store that is open for searching: its embedder, its worker threads, and the one way through a query."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from sqlrag.embedders.base import without_surrogates
from sqlrag.errors import InputError, ModelMismatchError
from sqlrag.options import not_blank
from sqlrag.retrieval.embedding import QuestionEmbedder
from sqlrag.retrieval.running import Run
from sqlrag.store.metadata import model_identity

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from sqlrag.retrieval.engine import Engine
    from sqlrag.retrieval.planning import Plan
    from sqlrag.retrieval.results import Results
    from sqlrag.types import Embedder, ModelIdentity

T = TypeVar("T")
GIVEN = "given"  # the provider of a file whose vectors were computed elsewhere
_LOAD_FOLDERS = ("onnx", "huggingface")


class Searcher:
    """Searches one open store. Safe to use from several threads at once."""

    def __init__(self, engine: Engine, embedder: Embedder | None = None) -> None:
        self.engine = engine
        self.questions = QuestionEmbedder(engine.path, self.identity, embedder)
        self._use_workers()

    @property
    def identity(self) -> ModelIdentity:
        """The model that the file was filled with."""
        return model_identity(self.engine.metadata)

    def _use_workers(self) -> None:
        # It starts its threads when there is work for them.
        self._workers = ThreadPoolExecutor(max(2, os.cpu_count() or 2), thread_name_prefix="sqlrag-lexical")
        self._process = os.getpid()

    def close(self) -> None:
        """End the worker threads."""
        self._workers.shutdown()

    def embedder(self) -> Embedder:
        """Return the embedder of the file, loaded once and checked against the file."""
        return self.questions.embedder()

    def check_model_name(self, model_name: str) -> None:
        """Raise ModelMismatchError unless this is the file's model: by its name, or a local folder by its vectors."""
        from sqlrag.embedders import check_identity, load_embedder

        identity = self.identity
        if same_model(model_name, identity.model_name) or identity.model_name == GIVEN:
            return
        if Path(model_name).is_dir():
            provider = identity.provider if identity.provider in _LOAD_FOLDERS else "auto"
            check_identity(load_embedder(model_name, provider=provider), identity)
            return
        raise ModelMismatchError(
            f"{self.engine.path} was built with the model {identity.model_name!r}; you passed model_name="
            f"{model_name!r}. Leave it out to use the file's, or give the file another model: reembed(db_path, model)."
        )

    def embed_query(self, query_text: str) -> NDArray[np.float32]:
        """Return the vector of a question, ``[dimensions] float32`` of unit norm."""
        return self.questions.embed(query_text)

    def search(
        self, query_text: str, plan: Plan, *, query_vector: ArrayLike | None = None, model_name: str | None = None
    ) -> Results:
        """Run the legs of the plan, the lexical one in a thread of its own, and fuse what they find."""
        started = time.perf_counter()
        results = self.run(query_text, plan, Run.package, query_vector=query_vector, model_name=model_name)
        results.timings["total"] = time.perf_counter() - started
        return results

    def run(
        self,
        query_text: str,
        plan: Plan,
        finish: Callable[[Run], T],
        *,
        query_vector: ArrayLike | None = None,
        model_name: str | None = None,
    ) -> T:
        """Run the legs of the plan and return what ``finish`` makes of them."""
        blank = not isinstance(query_text, str) or not query_text.strip()
        if blank and (query_vector is None or plan.mode != "vector"):
            raise InputError("The query is blank. Pass a question or some words.")
        if model_name is not None:
            self.check_model_name(model_name)

        def answer(engine: Engine) -> T:
            run = Run(self, engine, "" if blank else without_surrogates(query_text), plan)
            run.filter()
            self._run_legs(run, query_vector)
            run.refine()
            return finish(run)

        return self.engine.read(answer)

    def _run_legs(self, run: Run, query_vector: ArrayLike | None) -> None:
        mode = run.plan.mode
        if self._process != os.getpid():
            self._use_workers()  # a fork leaves the threads behind
        lexical_future = self._workers.submit(run.lexical) if mode == "hybrid" else None
        try:
            if mode != "lexical":
                run.vector(query_vector)
        finally:
            if lexical_future is not None:
                lexical_future.exception()  # wait, so that no leg outlives its query
        if lexical_future is not None:
            lexical_future.result()
        elif mode == "lexical":
            run.lexical()


def same_model(name: str, other: str) -> bool:
    """Return whether two names mean the same model: case and a left-out organisation do not matter."""
    name, other = not_blank("model_name", name).lower(), other.lower()
    if "/" in name and "/" in other:
        return name == other
    return name.rpartition("/")[2] == other.rpartition("/")[2]
