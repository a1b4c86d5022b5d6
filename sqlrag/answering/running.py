"""The second half of an answer: the model is asked, and what it cites is checked."""

from __future__ import annotations

import time
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

from sqlrag.answering.citing import citations_of
from sqlrag.answering.outcome import Answer, AnswerEvent
from sqlrag.answering.preparing import AnswerOptions, PromptRun
from sqlrag.answering.replies import checked
from sqlrag.embedders.base import without_surrogates
from sqlrag.embedders.scrubbing import scrub
from sqlrag.errors import ProviderError, SqlragError
from sqlrag.measuring import Measure, count, request
from sqlrag.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlrag.answering.chatting import ChatModel
    from sqlrag.answering.prompting import Prompt
    from sqlrag.answering.replies import Piece

NO_SOURCES = "Nothing was found for this question, so the model was not asked."
NO_ROOM = "What was found for this question does not fit into the context window, so the model was not asked."


class AnswerRun(PromptRun):
    """One answer: first :meth:`prepare`, which may raise, then :meth:`events`, then :meth:`answer`.

    ``closes`` says whether the model is closed at the end.
    """

    stage = "answer"

    def __init__(self, question: str, model: ChatModel, asked: AnswerOptions, request_id: str, *, closes: bool) -> None:
        super().__init__(question, asked, request_id, model)
        self.model = model
        self.parts: list[str] = []
        self.error: str | None = None
        self.finish_reason: str | None = None
        self.usage: dict[str, int] = {}
        self._closes = closes

    def events(self) -> Iterator[AnswerEvent]:
        """Return the events, which ask the model; with ``strict`` a failure of the model is raised."""
        events = self._events()
        next(events)  # to where it ends the run, even if nobody takes an event
        return events  # type: ignore[return-value]

    def _events(self) -> Iterator[AnswerEvent | None]:
        failure: object = "abandoned"
        try:
            yield None
            sources = self.prompt.sources if self.prompt else []
            yield AnswerEvent("sources", self.request_id, sources=sources, notices=list(self.notices))
            if self.prompt is None:
                text, self.finish_reason = (NO_ROOM, "no_room") if self.left_out else (NO_SOURCES, "no_sources")
                self.parts = [text]
                yield AnswerEvent("text", self.request_id, text=text)
            else:
                yield from self._asked_model(self.prompt)
            if self.usage:
                yield AnswerEvent("usage", self.request_id, usage=self.usage)
            failure = "the model failed" if self.error else None
            self.end(failure)
            yield AnswerEvent("done", self.request_id, answer=self.answer())
        except Exception as error:
            failure = error
            raise
        finally:
            self.end(failure)

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

    def _asked_model(self, prompt: Prompt) -> Iterator[AnswerEvent]:
        with request(self.request_id):
            measure = Measure("model", parent=self.whole, attributes={"gen_ai.request.model": self.model.model_name})
        failure: Exception | None = None
        try:
            pieces = self._pieces(prompt)
            with closing(pieces) if hasattr(pieces, "close") else nullcontext():
                for piece in checked(pieces, self.model.model_name):
                    self._take(piece, measure)
                    if piece.text:
                        yield AnswerEvent("text", self.request_id, text=piece.text)
            if not "".join(self.parts).strip():
                raise ProviderError(f"The chat model {self.model.model_name!r} wrote nothing ({self.finish_reason}).")
        except Exception as error:
            failure = error if isinstance(error, SqlragError) else _wrapped(error, self.model)
        finally:
            self.timings["model"] = measure.end(failure)
            count(**self.usage)
        if failure is not None:
            self.error, self.finish_reason = without_surrogates(scrub(str(failure))), None
            self.log.warning("the model failed after %.0f ms: %s", self.timings["model"] * 1000, self.error)
            if self.asked.strict:
                raise failure
            yield AnswerEvent("error", self.request_id, error=self.error)

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

    def end(self, failure: object = None) -> None:
        """End the measuring of the whole and the model's connections, once."""
        if "total" in self.timings:
            return
        super().end(failure)
        if self._closes:
            self.model.close()  # type: ignore[attr-defined]
        if failure is None:
            self.log.info(
                "answered from %s in %.0f ms: %s",
                counted(len(self.prompt.sources) if self.prompt else 0, "source"), self.timings["total"] * 1000,
                self.finish_reason,
            )  # fmt: skip


def _wrapped(error: Exception, model: ChatModel) -> ProviderError:
    said = str(error)
    wrapped = ProviderError(f"The chat model {model.model_name!r} failed: {type(error).__name__}: {scrub(said)}")
    # An exception that holds a secret is no cause to be shown.
    wrapped.__cause__ = error if scrub(said) == said else None
    return wrapped
