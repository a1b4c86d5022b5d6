"""One answer on its way: searched, fitted, prompted, asked, checked."""

from __future__ import annotations

import logging
import os
import time
from contextlib import closing, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlrag.answering.citing import citations_of
from sqlrag.answering.contexts import contexts_of
from sqlrag.answering.counting import token_counter
from sqlrag.answering.outcome import Answer, Event
from sqlrag.answering.prompting import Prompt, block, fence_of, prompt_of
from sqlrag.answering.rewriting import rewritten
from sqlrag.answering.windowing import LeftOut, fit_context
from sqlrag.errors import InputError, ProviderError, SqlragError
from sqlrag.measuring import Measure, RequestLog, count, measured, request
from sqlrag.retrieve import options
from sqlrag.retrieve.blocks import fuse
from sqlrag.store.calls import select_by_key
from sqlrag.types import RetrievePlan
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlrag.answering.chatting import ChatModel, Piece
    from sqlrag.answering.contexts import Context, Item
    from sqlrag.retrieve.store import Store
    from sqlrag.types import Candidate

NO_SOURCES = "Nothing was found for this question, so the model was not asked."
# What a server's chat format adds to two messages.
_FORMAT_TOKENS = 32


@dataclass(frozen=True)
class AnswerOptions:
    """What was asked of :func:`sqlrag.answer` beside the question, checked."""

    stream: bool
    strict: bool
    template: str | None
    system: str | None
    temperature: float | None
    max_tokens: int
    stop: tuple[str, ...]
    context_window: int
    count_tokens: Any
    margin: float
    expand: bool


class AnswerRun:
    """One answer: first :meth:`prepare`, which may raise, then :meth:`events`, then :meth:`answer`."""

    def __init__(self, question: str, model: ChatModel, asked: AnswerOptions, request_id: str, *, closes: bool) -> None:
        if not options.text("question", question).strip():
            raise InputError("The question is blank.")
        options.texts(template=asked.template, system=asked.system)
        self.question = question
        self.model = model
        self.asked = asked
        self.request_id = request_id
        self.log = RequestLog(logging.getLogger("sqlrag.answer"), {"request_id": request_id})
        self.queries = [question]
        self.notices: list[str] = []
        self.timings: dict[str, float] = {}
        self.left_out: list[LeftOut] = []
        self.prompt: Prompt | None = None
        self.parts: list[str] = []
        self.error: str | None = None
        self.finish_reason: str | None = None
        self.usage: dict[str, int] = {}
        self._closes = closes
        with request(request_id):
            self._whole = Measure("answer")

    def prepare(
        self, db_path: str | os.PathLike[str] | Store | None, plan: RetrievePlan | None, contexts: Sequence[Item] | None
    ) -> None:
        """Search unless there are contexts, choose what fits, and build the prompt."""
        try:
            with request(self.request_id):
                items, checksums = self._found(db_path, plan or RetrievePlan(), contexts)
                with measured("prompt", self.timings, parent=self._whole):
                    self._build(items, checksums)
        except BaseException as error:
            self._end(error)
            raise

    def events(self) -> Iterator[Event]:
        """Ask the model, and yield the events; with ``strict`` a failure of the model is raised."""
        failure: object = "abandoned"
        try:
            sources = self.prompt.sources if self.prompt else []
            yield Event("sources", self.request_id, sources=sources, notices=list(self.notices))
            if self.prompt is None:
                self.parts, self.finish_reason = [NO_SOURCES], "no_sources"
                yield Event("text", self.request_id, text=NO_SOURCES)
            else:
                yield from self._asked_model(self.prompt)
            if self.usage:
                yield Event("usage", self.request_id, usage=self.usage)
            failure = self.error
            self._end(failure)
            yield Event("done", self.request_id, answer=self.answer())
        except Exception as error:
            failure = error
            raise
        finally:
            self._end(failure)

    def answer(self) -> Answer:
        """Return the answer as it is by now."""
        text = "".join(self.parts)
        sources = self.prompt.sources if self.prompt else []
        cited = citations_of(text, len(sources))
        return Answer(
            question=self.question,
            text=text,
            sources=sources,
            citations=cited.known,
            unknown_citations=cited.unknown,
            finish_reason=self.finish_reason,
            error=self.error,
            model=self.model.model_name,
            usage=self.usage,
            timings=dict(self.timings),
            notices=[*self.notices, *self._notices_of(text, len(sources), cited.known, cited.unknown)],
            request_id=self.request_id,
            queries=self.queries,
            left_out=self.left_out,
        )

    # Searching.

    def _found(
        self, db_path: str | os.PathLike[str] | Store | None, plan: RetrievePlan, contexts: Sequence[Item] | None
    ) -> tuple[Sequence[Item], dict[str, str]]:
        """Return what to answer from, and the checksums of its documents."""
        if db_path is None:
            return contexts or (), {}
        with _opened(db_path) as store:
            items: Sequence[Item] = self._search(store, plan) if contexts is None else contexts
            return items, _checksums(store, {context.doc_id for context in contexts_of(items)})

    def _search(self, store: Any, plan: RetrievePlan) -> list[Candidate]:
        if self.asked.expand:
            self._rewrite()
        with measured("retrieve", self.timings, parent=self._whole, **{"sqlrag.top_k": plan.k}):
            rankings = [store.retrieve(query, plan) for query in self.queries]
            others = len(rankings) - 1
            weights = [1.0, *([1.0 / others] * others if others else [])]
            found = fuse(rankings, params={"weights": weights})[: plan.k] if others else list(rankings[0])
        for ranking in rankings:
            self.notices += [notice for notice in getattr(ranking, "notices", ()) if notice not in self.notices]
            for stage, seconds in getattr(ranking, "timings", {}).items():
                self.timings[f"retrieve.{stage}"] = self.timings.get(f"retrieve.{stage}", 0.0) + seconds
        scores = f"{found[0].score_type} {found[0].score:.4f} to {found[-1].score:.4f}" if found else "no scores"
        self.log.info(
            "%s of top_k %d for %s, %s, in %.0f ms",
            counted(len(found), "chunk"), plan.k, counted(len(rankings), "query", "queries"), scores,
            self.timings["retrieve"] * 1000,
        )  # fmt: skip
        return found

    def _rewrite(self) -> None:
        try:
            with measured("model", self.timings, parent=self._whole, **{"gen_ai.request.model": self.model.model_name}):
                others = rewritten(self.question, self.model, request_id=self.request_id)
        except Exception as error:  # a model of the caller's own may raise anything
            self._note(f"The question was not expanded: {error}")
            return
        finally:
            self.timings["expand"] = self.timings.pop("model")
        if not others:
            self._note("The question was not expanded: the model wrote no other wording.")
        self.queries += others

    # Choosing and prompting.

    def _build(self, items: Sequence[Item], checksums: dict[str, str]) -> None:
        """Fit the items into the window and build the prompt; none where nothing is left."""
        if not items:
            return
        count_tokens = token_counter(self.asked.count_tokens)
        limit = self.asked.context_window - self.asked.max_tokens - _FORMAT_TOKENS
        fence = fence_of(contexts_of(items))
        best = contexts_of(items[:1])
        beside = max(0, count_tokens(str(self._prompt_of(best))) - count_tokens(block(best[0], 1, fence)))
        if limit - beside < 1:
            raise InputError(
                f"context_window={self.asked.context_window} has no room for a source beside {beside} tokens of "
                f"instructions and question and max_tokens={self.asked.max_tokens}."
            )
        window = fit_context(items, limit - beside, count_tokens=count_tokens, margin=self.asked.margin)
        self.notices += window.notices
        self.left_out = window.left_out
        contexts = contexts_of(window.contexts, checksums)
        # A template of the user's own may take more for each source than was counted.
        while contexts and count_tokens(str(self._prompt_of(contexts))) > limit:
            last = contexts.pop()
            size = count_tokens(block(last, len(items), fence))
            self.left_out.append(LeftOut(last.node_id, last.doc_id, last.score, size, "no room beside better ones"))
            self._note(f"{last.node_id or 'A source'} did not fit into {limit} tokens with this template.")
        self.prompt = self._prompt_of(contexts) if contexts else None

    def _prompt_of(self, contexts: Sequence[Context]) -> Prompt:
        return prompt_of(self.question, contexts, self.asked.template, self.asked.system)

    # Asking.

    def _asked_model(self, prompt: Prompt) -> Iterator[Event]:
        with request(self.request_id):
            measure = Measure("model", parent=self._whole, **{"gen_ai.request.model": self.model.model_name})
        failure: Exception | None = None
        try:
            pieces = self._pieces(prompt)
            with closing(pieces) if hasattr(pieces, "close") else nullcontext():
                for piece in pieces:
                    self._take(piece, measure)
                    if piece.text:
                        yield Event("text", self.request_id, text=piece.text)
            if not "".join(self.parts).strip():
                raise ProviderError(f"The chat model {self.model.model_name!r} wrote nothing ({self.finish_reason}).")
        except Exception as error:
            failure = error if isinstance(error, SqlragError) else _wrapped(error, self.model)
        finally:
            self.timings["model"] = measure.end(failure)
            count(**self.usage)
        if failure is not None:
            self.error, self.finish_reason = str(failure), None
            self.log.warning("the model failed after %.0f ms: %s", self.timings["model"] * 1000, failure)
            if self.asked.strict:
                raise failure
            yield Event("error", self.request_id, error=self.error)

    def _pieces(self, prompt: Prompt) -> Any:
        return self.model.chat(
            prompt.messages,
            stream=self.asked.stream,
            temperature=self.asked.temperature,
            max_tokens=self.asked.max_tokens,
            stop=self.asked.stop,
            request_id=self.request_id,
        )

    def _take(self, piece: Piece, measure: Measure) -> None:
        if piece.text:
            self.timings.setdefault("first_text", time.perf_counter() - measure.began)
            self.parts.append(piece.text)
        self.finish_reason = piece.finish_reason or self.finish_reason
        self.usage = piece.usage or self.usage

    def _notices_of(self, text: str, sources: int, known: list[int], unknown: list[int]) -> list[str]:
        notices = []
        if self.finish_reason == "length":
            notices.append(f"The answer ends where max_tokens={self.asked.max_tokens} cut it off.")
        if unknown:
            numbers = ", ".join(f"[{number}]" for number in unknown)
            notices.append(f"The answer cites {numbers}, but its sources are [1] to [{sources}].")
        if sources and text.strip() and not known and self.error is None:
            notices.append("The answer cites none of its sources.")
        return notices

    def _note(self, notice: str) -> None:
        self.notices.append(notice)
        self.log.warning("%s", notice)

    def _end(self, failure: object) -> None:
        """End the measuring of the whole and the model's connections, once."""
        if "total" in self.timings:
            return
        self.timings["total"] = self._whole.end(failure)
        if self._closes:
            self.model.close()  # type: ignore[attr-defined]
        if failure is None:
            self.log.info(
                "answered from %s in %.0f ms: %s",
                counted(len(self.prompt.sources) if self.prompt else 0, "source"), self.timings["total"] * 1000,
                self.finish_reason,
            )  # fmt: skip


def _wrapped(error: Exception, model: ChatModel) -> ProviderError:
    wrapped = ProviderError(f"The chat model {model.model_name!r} failed: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _opened(db_path: str | os.PathLike[str] | Store) -> Any:
    """Return a context manager of a store: a file's, closed at the end, or the one that was passed, left open."""
    if isinstance(db_path, (str, os.PathLike)):
        from sqlrag.retrieve.store import Store

        return Store(db_path)
    if not callable(getattr(db_path, "retrieve", None)):
        raise InputError(f"db_path must be a path or a Store, not {db_path!r:.200}.")
    return nullcontext(db_path)


def _checksums(store: Any, doc_ids: set[str]) -> dict[str, str]:
    """Return the SHA-256 of documents by doc_id; none where the store is of another engine."""
    if not hasattr(store, "cursor"):
        return {}
    sql = "SELECT doc_id, checksum FROM source_documents WHERE doc_id IN (...)"
    return {doc_id: checksum for doc_id, checksum in select_by_key(store.cursor(), sql, sorted(doc_ids)) if checksum}
