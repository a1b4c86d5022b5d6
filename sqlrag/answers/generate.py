"""The second half of an answer: calls the model, and checks its citation markers."""

from __future__ import annotations

import re
import time
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlrag.answers.chat_models import checked
from sqlrag.answers.outcome import Answer, AnswerEvent
from sqlrag.answers.select import AnswerOptions, PromptRun
from sqlrag.arguments import counted
from sqlrag.errors import ProviderError, SqlragError
from sqlrag.network import scrub
from sqlrag.normalize import without_surrogates
from sqlrag.telemetry import Measure, count, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlrag.answers.chat_models import ChatModel, Piece
    from sqlrag.answers.prompt import Prompt

_TICKS = re.compile("`+")

_FENCE = re.compile(r"[ \t>]*(`{3,}(?=[^`]*$)|~{3,})")

_BLANK_LINE = re.compile(r"\n[ \t]*\n")

_BRACKETS = re.compile(r"[\[【]([^\[\]【】]+)[\]】]")

_NUMBER = r"(?:(?:sources?|documents?|docs?|references?|refs?) ?:? ?)?#?\d{1,9}"

_BETWEEN = r" ?(?:[,;&] ?(?:and |or )?|and |or |to |[-–—] ?)"

# At most one blank between two parts, so that the match is unambiguous and does not backtrack.
_MARKER = re.compile(rf"\^?({_NUMBER}(?:{_BETWEEN}{_NUMBER})* ?)(?:†.*)?", re.IGNORECASE)

_TOKEN = re.compile(r"\d+|to |[-–—]", re.IGNORECASE)

_LONGEST_RANGE = 50


class Citations(NamedTuple):
    """The numbers that an answer cites, each once, in the order of their first markers."""

    known: list[int]
    unknown: list[int]


def citations_of(text: str, sources: int) -> Citations:
    """Return which of the sources, numbered from 1, a text cites, and which cited numbers are not among them.

    A marker is a pair of ``[]`` or ``【】`` that contains only numbers of up to nine digits, such as ``[1]``,
    ``[^1]``, ``[#1]``, ``[Source 1]`` (also document, doc, reference, ref) or ``【1†source】``; several are joined by
    ``,``, ``;``, ``&``, "and" or "or". A dash or "to" between two is a range: all its numbers if it ascends by 50 at
    most, else both ends. Code, between backticks or fences, is ignored.

    Examples
    --------
    >>> citations_of("Open it [1]. Then [2, 7] `list[3]`, again [1].", sources=3)
    Citations(known=[1, 2], unknown=[7])
    >>> citations_of("[Source 1, source 3] [4 to 6]", sources=9).known
    [1, 3, 4, 5, 6]
    """
    numbers = dict.fromkeys(
        number
        for paragraph in _BLANK_LINE.split(_without_fences(text))
        for inside in _BRACKETS.findall(_without_code(paragraph))
        for number in _numbers(" ".join(inside.split()))
    )
    return Citations(
        [number for number in numbers if 1 <= number <= sources],
        [number for number in numbers if not 1 <= number <= sources],
    )


def _without_fences(text: str) -> str:
    """Return a text without fenced code blocks; an unclosed one ends with the text."""
    kept, fence = [], ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark[1].startswith(fence) and not line[mark.end() :].strip():
                fence = ""
        elif mark:
            fence = mark[1]
            kept += ["", ""]
        else:
            kept.append(line)
    return "\n".join(kept)


def _without_code(text: str) -> str:
    """Return a text without inline code, between two runs of backticks of the same length."""
    runs = list(_TICKS.finditer(text))
    closing: dict[int, list[int]] = {}
    for place in reversed(range(len(runs))):
        closing.setdefault(len(runs[place][0]), []).append(place)
    kept, position, place = [], 0, 0
    while place < len(runs):
        later = closing[len(runs[place][0])]
        while later and later[-1] <= place:
            later.pop()
        if later:
            kept.append(text[position : runs[place].start()])
            place = later[-1]
            position = runs[place].end()
        place += 1
    return " ".join([*kept, text[position:]])


def _numbers(inside: str) -> list[int]:
    """Return the numbers of a marker, none if the text is not a marker."""
    marker = _MARKER.fullmatch(inside)
    numbers: list[int] = []
    is_range = False
    for token in _TOKEN.findall(marker[1]) if marker else ():
        if not token.isdigit():
            is_range = True
            continue
        number = int(token)
        first = numbers[-1] + 1 if is_range else number
        numbers += range(first, number) if first < number <= first + _LONGEST_RANGE else ()
        numbers.append(number)
        is_range = False
    return numbers


NO_SOURCES = "Nothing was found for this question, so the model was not called."

NO_ROOM = "No result for this question fits into the context window, so the model was not called."


class AnswerRun(PromptRun):
    """One answer: first :meth:`prepare`, which may raise, then :meth:`events`, then :meth:`answer`.

    ``closes``: close the model at the end.
    """

    stage = "answer"

    def __init__(
        self, question: str, model: ChatModel, options: AnswerOptions, request_id: str, *, closes: bool
    ) -> None:
        super().__init__(question, options, request_id, model)
        self.model = model
        self.parts: list[str] = []
        self.error: str | None = None
        self.finish_reason: str | None = None
        self.usage: dict[str, int] = {}
        self._closes = closes

    def events(self) -> Iterator[AnswerEvent]:
        """Return the events; iterating calls the model, and with ``strict`` raises its failure."""
        events = self._events()
        next(events)  # enter the try block, so that closing the iterator ends the run even if no event is read
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
                yield from self._call_model(self.prompt)
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
        """Return the current state of the answer."""
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

    def _call_model(self, prompt: Prompt) -> Iterator[AnswerEvent]:
        with request(self.request_id):
            measure = Measure("model", parent=self.whole, attributes={"gen_ai.request.model": self.model.model_name})
        failure: Exception | None = None
        try:
            pieces = self._pieces(prompt)
            with closing(pieces) if hasattr(pieces, "close") else nullcontext():
                for piece in checked(pieces, self.model.model_name):
                    self._record(piece, measure)
                    if piece.text:
                        yield AnswerEvent("text", self.request_id, text=piece.text)
            if not "".join(self.parts).strip():
                raise ProviderError(
                    f"The chat model {self.model.model_name!r} returned no text ({self.finish_reason})."
                )
        except Exception as error:
            failure = error if isinstance(error, SqlragError) else _wrapped(error, self.model)
        finally:
            self.timings["model"] = measure.end(failure)
            count(**self.usage)
        if failure is not None:
            self.error, self.finish_reason = without_surrogates(scrub(str(failure))), None
            self.log.warning("the model failed after %.0f ms: %s", self.timings["model"] * 1000, self.error)
            if self.options.strict:
                raise failure
            yield AnswerEvent("error", self.request_id, error=self.error)

    def _pieces(self, prompt: Prompt) -> Any:
        return self.model.chat(
            prompt.messages,
            stream=self.options.stream,
            temperature=self.options.temperature,
            max_tokens=self.options.max_tokens,
            stop=self.options.stop,
            request_id=self.request_id,
        )

    def _record(self, piece: Piece, measure: Measure) -> None:
        if piece.text:
            self.timings.setdefault("first_text", time.perf_counter() - measure.began)
            self.parts.append(piece.text)
        self.finish_reason = piece.finish_reason or self.finish_reason
        self.usage = piece.usage or self.usage

    def _notices_of(self, text: str, sources: int, known: list[int], unknown: list[int]) -> list[str]:
        notices = []
        if self.finish_reason == "length":
            notices.append(f"The answer was cut off at max_tokens={self.options.max_tokens}.")
        if unknown:
            numbers = ", ".join(f"[{number}]" for number in unknown)
            notices.append(f"The answer cites {numbers}, but its sources are [1] to [{sources}].")
        if sources and text.strip() and not known and self.error is None:
            notices.append("The answer cites none of its sources.")
        return notices

    def end(self, failure: object = None) -> None:
        """End the measurement and close the model's connections, once."""
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
    message = str(error)
    wrapped = ProviderError(f"The chat model {model.model_name!r} failed: {type(error).__name__}: {scrub(message)}")
    # An exception that contains a secret must not be shown as the cause.
    wrapped.__cause__ = error if scrub(message) == message else None
    return wrapped
