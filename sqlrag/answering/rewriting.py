"""Other wordings of a question, written by a chat model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sqlrag.answering.prompting import harmless
from sqlrag.answering.replies import checked

if TYPE_CHECKING:
    from sqlrag.answering.chatting import ChatModel

MOST_QUERIES = 3
_LONGEST = 300  # characters
_TOKENS = 120
_SYSTEM = (
    "You write search queries. For the user's question, write up to three other wordings of it, with words that a "
    "document with the answer may use. One on each line, nothing else. Do not answer the question."
)
# What models put before the lines of a list, and around them.
_BULLET = re.compile(r"^\s*(?:[-*•]|\(?\d{1,2}[.):])\s*")
_QUOTES = " \t\"'`“”„«»"


def rewritten(question: str, model: ChatModel, *, request_id: str = "") -> list[str]:
    """Return up to three other wordings of a question; none where the model writes no usable line.

    Raises what the model raises.
    """
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": harmless(question)}]
    reply = model.chat(messages, max_tokens=_TOKENS, request_id=request_id)
    return queries_of("".join(piece.text for piece in checked(reply, model.model_name)), question)


def queries_of(text: str, question: str) -> list[str]:
    r"""Return the lines of a reply as queries: without bullets and quotes, blank, overlong and repeated ones left out.

    Examples
    --------
    >>> queries_of('1. "red valve"\n- Red valve\n\n* How to open it?', "How to open it?")
    ['red valve']
    """
    seen, queries = {question.strip().casefold()}, []
    for line in text.splitlines():
        query = _BULLET.sub("", line).strip(_QUOTES)
        if query and len(query) <= _LONGEST and query.casefold() not in seen and any(map(str.isalnum, query)):
            seen.add(query.casefold())
            queries.append(query)
    return queries[:MOST_QUERIES]
