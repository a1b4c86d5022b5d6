"""The first half of an answer: what is searched for, what fits, and the prompt that comes of it."""

from __future__ import annotations

import logging
import os
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sqlrag import options
from sqlrag.answering.contexts import contexts_of, notices_of
from sqlrag.answering.counting import token_counter
from sqlrag.answering.prompting import Prompt, block, fence_of, prompt_of
from sqlrag.answering.refining import Refinement, distinct, reordered, shortened
from sqlrag.answering.rewriting import rewritten
from sqlrag.answering.windowing import LeftOut, fit_context
from sqlrag.embedders.base import without_surrogates
from sqlrag.embedders.scrubbing import scrub
from sqlrag.errors import InputError
from sqlrag.measuring import Measure, RequestLog, measured, request
from sqlrag.retrieval.blocks import fuse
from sqlrag.types import RetrievePlan
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlrag.answering.chatting import ChatModel
    from sqlrag.answering.contexts import Context, Item
    from sqlrag.types import AnyStores, Candidate

# What a server's chat format adds to two messages.
_FORMAT_TOKENS = 32


@dataclass(frozen=True)
class AnswerOptions:
    """What was asked of :func:`sqlrag.answer` beside the question, checked."""

    template: str | None
    system: str | None
    max_tokens: int
    context_window: int
    count_tokens: Any
    margin: float
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    stream: bool = False
    strict: bool = False
    expand: bool = False
    refinement: Refinement = field(default_factory=Refinement)


class PromptRun:
    """A question on its way to a prompt. ``model`` is needed where the question is to be expanded."""

    stage = "prompt"

    def __init__(self, question: str, asked: AnswerOptions, request_id: str, model: ChatModel | None = None) -> None:
        if not options.text("question", question).strip():
            raise InputError("The question is blank.")
        options.texts(template=asked.template, system=asked.system)
        self.question = question
        self.asked = asked
        self.request_id = request_id
        self.log = RequestLog(logging.getLogger("sqlrag.answer"), {"request_id": request_id})
        self.queries = [question]
        self.notices: list[str] = []
        self.timings: dict[str, float] = {}
        self.left_out: list[LeftOut] = []
        self.prompt: Prompt | None = None
        self._model = model
        with request(request_id):
            self.whole = Measure(self.stage)

    def prepare(self, db_path: AnyStores | None, plan: RetrievePlan | None, contexts: Sequence[Item] | None) -> None:
        """Search unless there are contexts, choose what fits, and build the prompt."""
        try:
            if not isinstance(plan, (RetrievePlan, type(None))):
                raise InputError(f"plan must be a RetrievePlan, not {options.shown(plan)}.")
            if contexts is not None:
                self.notices += notices_of(contexts)
                contexts = options.items("contexts", contexts, "what a query returned")
            with request(self.request_id):
                items, checksums = self._found(db_path, plan or RetrievePlan(), contexts)
                with measured("fit", self.timings, parent=self.whole):
                    self._build(items, checksums)
        except BaseException as error:
            self.end(error)
            raise

    def end(self, failure: object = None) -> None:
        """End the measuring of the whole, once."""
        if "total" not in self.timings:
            self.timings["total"] = self.whole.end(failure)

    def note(self, notice: str) -> None:
        """Tell the reader and the log."""
        self.notices.append(notice)
        self.log.warning("%s", notice)

    # Searching.

    def _found(
        self, db_path: AnyStores | None, plan: RetrievePlan, contexts: Sequence[Item] | None
    ) -> tuple[Sequence[Item], dict[str, str]]:
        """Return what to answer from, and the checksums of its documents."""
        with nullcontext() if db_path is None else _opened(db_path) as store:
            items: Sequence[Item] = self._search(store, plan) if contexts is None else contexts
            items = self._refined(items, store, options.whole("k", plan.k, 1) if contexts is None else None)
            return items, _checksums(store, {context.doc_id for context in contexts_of(items)})

    def _search(self, store: Any, plan: RetrievePlan) -> list[Candidate]:
        if self.asked.expand and self._model is not None:
            self._rewrite(self._model)
        # As many as each leg gives to the fusion: to choose from, and to take the places of repeats.
        pool = max(options.whole("k", plan.k, 1), options.whole("candidate_pool", plan.candidate_pool, 1))
        with measured("retrieve", self.timings, parent=self.whole, attributes={"sqlrag.top_k": plan.k}):
            rankings = [store.retrieve(query, replace(plan, k=pool)) for query in self.queries]
            others = len(rankings) - 1
            weights = [1.0, *([1.0 / others] * others if others else [])]
            found = fuse(rankings, params={"weights": weights})[:pool] if others else list(rankings[0])
        for ranking in rankings:
            self.notices += [notice for notice in getattr(ranking, "notices", ()) if notice not in self.notices]
            for stage, seconds in getattr(ranking, "timings", {}).items():
                self.timings[f"retrieve.{stage}"] = self.timings.get(f"retrieve.{stage}", 0.0) + seconds
        scores = f"{found[0].score_type} {found[0].score:.4f} to {found[-1].score:.4f}" if found else "no scores"
        self.log.info(
            "%s to choose top_k %d from for %s, %s, in %.0f ms",
            counted(len(found), "chunk"), plan.k, counted(len(rankings), "query", "queries"), scores,
            self.timings["retrieve"] * 1000,
        )  # fmt: skip
        return found

    def _rewrite(self, model: ChatModel) -> None:
        try:
            with measured(
                "model", self.timings, parent=self.whole, attributes={"gen_ai.request.model": model.model_name}
            ):
                others = rewritten(self.question, model, request_id=self.request_id)
        except Exception as error:  # a model of the caller's own may raise anything
            self.note(f"The question was not expanded: {scrub(str(error))}")
            return
        finally:
            self.timings["expand"] = self.timings.pop("model")
        if not others:
            self.note("The question was not expanded: the model wrote no other wording.")
        self.queries += others

    def _refined(self, items: Sequence[Item], store: Any, keep: int | None) -> list[Item]:
        """Leave out repeats, order the rest anew, take the best ``keep`` and shorten them: what of it is asked for."""
        wanted = self.asked.refinement
        items, repeats = distinct(items)
        if wanted.reorders:
            with measured("rerank", self.timings, parent=self.whole):
                candidates = reordered(without_surrogates(self.question), items, store, wanted, keep)
            self.notices += candidates.notices
            items = list(candidates)
        items = items[:keep]
        names = {context.node_id for context in contexts_of(items)}
        if wanted.compress:
            with measured("compress", self.timings, parent=self.whole):
                items, more = distinct(shortened(without_surrogates(self.question), items, store, wanted.compress))
            repeats += more
        told = [f"{other or 'one'} (as {best or 'another'})" for best, other in repeats if best in names]
        if told:
            self.notices.append(f"Left out, since a better chunk has the same text: {', '.join(told)}.")
        return items

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
            self.note(f"{last.node_id or 'A source'} did not fit into {limit} tokens with this template.")
        self.prompt = self._prompt_of(contexts) if contexts else None

    def _prompt_of(self, contexts: Sequence[Context]) -> Prompt:
        return prompt_of(self.question, contexts, self.asked.template, self.asked.system)


def _opened(db_path: AnyStores) -> Any:
    """Return a context manager of a store: a file's, closed at the end, or the one that was passed, left open."""
    if isinstance(db_path, (str, os.PathLike)):
        from sqlrag.retrieval.querying import opened_any

        return opened_any(db_path)
    if isinstance(db_path, (list, tuple)):
        from sqlrag.retrieval.stores import Stores

        return Stores(db_path)
    if not callable(getattr(db_path, "retrieve", None)):
        raise InputError(f"db_path must be a path, a list of them or a Store, not {options.shown(db_path)}.")
    return nullcontext(db_path)


def _checksums(store: Any, doc_ids: set[str]) -> dict[str, str]:
    """Return the SHA-256 of documents by doc_id; none where the store is of another engine."""
    if not hasattr(store, "checksums"):
        return {}
    found: dict[str, str] = store.checksums(sorted(doc_ids))
    return found
