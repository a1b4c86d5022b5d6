"""The vectors of questions: the model that a file names, and how long it is waited for."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING

from sqlrag.embedders.batching import question_waits
from sqlrag.embedders.scrubbing import scrub
from sqlrag.errors import MissingExtraError, ModelUnavailableError, ProviderError, SqlragError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from sqlrag.types import Embedder, ModelIdentity

EMBEDDING_FAILURES = (ModelUnavailableError, ProviderError, MissingExtraError)

RETRY_SECONDS = 1.0
"""How long a model is waited for that the last time took longer than this to fail. Long enough for one that works."""

_CACHED_QUERIES = 256


class QuestionEmbedder:
    """Embeds questions with the model of a file, which is loaded and compared with the file at the first of them.

    Every question tries the model anew, so that it takes part again once it can. A provider may have the attribute
    ``timeout``, in seconds: no impatient question waits longer. After a failure that took long, impatient questions
    wait for a second only; an answer that comes later than that is kept for the next time.
    """

    def __init__(self, path: Path | str, identity: ModelIdentity, embedder: Embedder | None) -> None:
        self._path = path
        self._identity = identity
        self._embedder = embedder
        self._is_checked = False
        self._was_slow_to_fail = False
        self._vectors: dict[str, NDArray[np.float32]] = {}

    @property
    def loaded(self) -> Embedder | None:
        """The embedder, if it was given or has been loaded."""
        return self._embedder

    def embedder(self) -> Embedder:
        """Return the embedder of the file, loaded once and checked against the file.

        Raises
        ------
        ModelMismatchError
            The model's vectors are not those that the file was built with.
        ModelUnavailableError, MissingExtraError, ProviderError
            It cannot be loaded here, or does not answer.
        """
        from sqlrag.embedders.stored import check_stored

        embedder = self._load()
        if not self._is_checked:
            waiting = question_waits.set(True)
            try:
                check_stored(embedder, self._identity)
            finally:
                question_waits.reset(waiting)
            self._is_checked = True
        return embedder

    def embed(
        self, query_text: str, *, patient: bool = True, timings: dict[str, float] | None = None
    ) -> NDArray[np.float32]:
        """Return the vector of a question, ``[dimensions] float32`` of unit norm; the last 256 are remembered.

        ``patient`` waits as long as the provider itself does. ``timings`` gets the seconds of "load" and "embed".
        """
        timings = {} if timings is None else timings
        vector = self._vectors.pop(query_text, None)
        if vector is not None:
            self._vectors[query_text] = vector  # last, as the one used last
            timings["embed"] = 0.0
            return vector
        began = time.perf_counter()
        try:
            if self._was_slow_to_fail and not patient:
                return self._within(RETRY_SECONDS, lambda: self._attempt(query_text, timings))
            seconds: float | None = getattr(self._load(timings), "timeout", None)
            if patient or seconds is None:
                return self._attempt(query_text, timings)
            left = max(0.1, seconds - (time.perf_counter() - began))
            return self._within(left, lambda: self._attempt(query_text, timings))
        except EMBEDDING_FAILURES:
            # What fails at once, such as a server that is not running, costs nothing to try again.
            self._was_slow_to_fail = self._was_slow_to_fail or time.perf_counter() - began > RETRY_SECONDS
            raise

    def _load(self, timings: dict[str, float] | None = None) -> Embedder:
        from sqlrag.embedders.stored import load_stored

        if self._embedder is None:
            began = time.perf_counter()
            remedy = "with. Pass query_vector to a search, vectors to index, or an embedder to Store(path, embedder=…)."
            try:
                self._embedder = load_stored(self._path, self._identity, remedy)
            except SqlragError:
                raise
            except Exception as error:  # a provider of others may raise anything
                raise ModelUnavailableError(
                    f"The {self._identity.provider} model {self._identity.model_name!r} of {self._path} cannot be "
                    f"loaded: {type(error).__name__}: {scrub(str(error))}"
                ) from error
            if timings is not None:
                timings["load"] = time.perf_counter() - began
        return self._embedder

    def _attempt(self, query_text: str, timings: dict[str, float]) -> NDArray[np.float32]:
        from sqlrag.embedders import embed_texts

        self._load(timings)
        began = time.perf_counter()
        vector: NDArray[np.float32] = embed_texts(self.embedder(), [query_text], kind="query")[0]
        timings["embed"] = time.perf_counter() - began
        self._was_slow_to_fail = False
        while len(self._vectors) >= _CACHED_QUERIES:
            self._vectors.pop(next(iter(list(self._vectors)), ""), None)
        self._vectors[query_text] = vector
        return vector

    def _within(self, seconds: float, work: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        """Return what the work returns, or raise ProviderError if that takes longer; the work goes on to its end."""
        answer: Future[NDArray[np.float32]] = Future()

        def run() -> None:
            try:
                answer.set_result(work())
            except BaseException as error:
                answer.set_exception(error)

        # A daemon, because a process must be able to end while a server keeps it waiting.
        threading.Thread(target=run, name="sqlrag-embed", daemon=True).start()
        wait([answer], timeout=seconds)
        if not answer.done():
            raise ProviderError(
                f"The {self._identity.provider} model {self._identity.model_name!r} gave no answer within "
                f"{seconds:.3g} seconds. See whether its server is well; vector_query and strict=True wait longer."
            )
        return answer.result()
