"""The sentences of a text, as offsets: prose by its sentence ends, Markdown block by block."""

from __future__ import annotations

import logging
import re
import unicodedata
from functools import cache
from typing import TYPE_CHECKING

from sqlrag.embedders.base import without_surrogates
from sqlrag.ingest.splitting import Limits, Splitter, trimmed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it import MarkdownIt

logger = logging.getLogger(__name__)

Span = tuple[int, int]

# The line ends that markdown-it counts, so that its line numbers can be turned into offsets.
_LINE_END = re.compile(r"\r\n?|\n")
# What is one sentence as it stands: a heading, code, HTML, a row of a table.
_WHOLE = {"heading_open", "fence", "code_block", "html_block", "tr_open"}
# sentencex looks for a blank before an abbreviation by the byte, and fails where a blank has more than one.
_BLANKS = {code: "\n" if code in (0x85, 0x2028, 0x2029) else " " for code in range(0x80, 0x3001) if chr(code).isspace()}
# sentencex ends a sentence at a full stop that begins a word, as in ".NET".
_BEGINS_A_WORD = re.compile(r"\s\.\w")
_LANGUAGES = {"CYRILLIC": "ru", "CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "GREEK": "el", "ARABIC": "ar",
              "DEVANAGARI": "hi", "ARMENIAN": "hy"}  # fmt: skip
_SAMPLE = 400  # letters that are looked at to tell the script


def sentence_spans(
    text: str, *, markdown: bool = False, language: str | None = None, longest: int | None = None
) -> list[Span]:
    """Return (start, end) of every sentence in reading order; together they hold every character that is not blank.

    Parameters
    ----------
    text
        Any text; offsets count its characters.
    markdown
        Whether it is Markdown: a sentence then never spans two blocks; a heading, a code block, HTML or a row of a
        table is one.
    language
        Code of the language, such as "de", whose abbreviations count. None is English for Latin letters, and the
        commonest language of any other script.
    longest
        What is longer in characters is cut at the best border inside. None is no limit.
    """
    text = without_surrogates(text)
    language = without_surrogates(language or _guess(text)).partition("-")[0].lower()
    spans = []
    for start, end, whole in _blocks(text) if markdown else [(0, len(text), False)]:
        for span in [(start, end)] if whole else _sentences(text, start, end, language):
            span = trimmed(text, *span)
            if span[0] < span[1]:
                spans += _pieces(text, span, longest)
    return spans


def _pieces(text: str, span: Span, longest: int | None) -> list[Span]:
    if longest is None or span[1] - span[0] <= longest:
        return [span]
    return list(Splitter(text, *span).pieces(Limits(chars=longest)))


def _sentences(text: str, start: int, end: int, language: str) -> Iterator[Span]:
    import sentencex

    plain = text[start:end].translate(_BLANKS)
    try:
        borders = sentencex.get_sentence_boundaries(language, plain)
    except BaseException as error:
        # A fault in the library's Rust code arrives as an exception that is no Exception.
        if type(error).__name__ != "PanicException":
            raise
        logger.warning("A stretch of %d characters is taken as one sentence: %s", end - start, error)
        yield start, end
        return
    done = 0
    for border in borders:
        end = border["end_index"]
        if not _BEGINS_A_WORD.match(plain, max(0, end - 2)):
            yield start + done, start + end
            done = end


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, whole) of the blocks of Markdown and of what lies between them, in reading order."""
    lines = [0, *(match.end() for match in _LINE_END.finditer(text))]

    def offset(line: int) -> int:
        return lines[line] if line < len(lines) else len(text)

    done = 0
    in_table = False
    for token in _parser().parse(text):
        if token.type in ("table_open", "tbody_open"):
            in_table = token.type == "tbody_open"
        if token.map is None or token.type not in _WHOLE | {"inline"}:
            continue
        start, end = offset(token.map[0]), offset(token.map[1])
        # The text of a heading and the cells of a row come after it, with no lines of their own to add.
        if end <= done:
            continue
        if in_table and token.type == "tr_open":
            start, in_table = done, False  # the line of dashes goes with the first row below it
        if start > done:
            yield done, start, False
        yield max(start, done), end, token.type in _WHOLE
        done = end
    if done < len(text):
        yield done, len(text), False


@cache
def _parser() -> MarkdownIt:
    """Return a parser of blocks, tables among them, that leaves alone what stands inside them."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.disable("inline")
    return parser


def _guess(text: str) -> str:
    """Return the language whose rules suit the script that most of the first letters have."""
    counts: dict[str, int] = {}
    letters = (character for character in text if character.isalpha())
    for _, letter in zip(range(_SAMPLE), letters, strict=False):
        script = "LATIN" if letter.isascii() else unicodedata.name(letter, "?").split()[0]
        counts[script] = counts.get(script, 0) + 1
    return _LANGUAGES.get(max(counts, key=lambda script: counts[script], default=""), "en")
