"""Where sentences begin and end, also in Markdown."""

from __future__ import annotations

import logging
import re
import unicodedata
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

from sqlrag.ingest.chunk import Limits, Splitter, trimmed
from sqlrag.normalize import without_surrogates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it import MarkdownIt

logger = logging.getLogger(__name__)

Span = tuple[int, int]

# The line ends that markdown-it counts, to convert its line numbers to offsets.
_LINE_END = re.compile(r"\r\n?|\n")

# Blocks that are one sentence: a heading, code, HTML, a row of a table.
_WHOLE = {"heading_open", "fence", "code_block", "html_block", "tr_open"}

# A table in a chunk that begins below its header is a paragraph to the parser.
_ROWS = re.compile(r"(?:\|[^\n]*\|[ \t]*(?:\n|$))+")

# sentencex expects blanks of one byte before abbreviations, and fails on longer ones.
_BLANKS = {code: "\n" if code in (0x85, 0x2028, 0x2029) else " " for code in range(0x80, 0x3001) if chr(code).isspace()}

# sentencex ends a sentence at a full stop at the start of a word, as in ".NET".
_BEGINS_A_WORD = re.compile(r"\s\.\w")

_LANGUAGES = {"CYRILLIC": "ru", "CJK": "zh", "HIRAGANA": "ja", "KATAKANA": "ja", "GREEK": "el", "ARABIC": "ar",
              "DEVANAGARI": "hi", "ARMENIAN": "hy"}  # fmt: skip

_SAMPLE = 400  # letters used to detect the script


def sentence_spans(
    text: str, *, markdown: bool = False, language: str | None = None, longest: int | None = None
) -> list[Span]:
    """Return (start, end) of every sentence in reading order; they cover every non-blank character.

    Parameters
    ----------
    text
        Any text; offsets count its characters.
    markdown
        Whether it is Markdown: a sentence then never spans two blocks, and a heading, a code block, HTML or a row of a
        table is one sentence.
    language
        Code of the language, such as "de", for abbreviations. None is English for Latin letters, and the most common
        language of any other script.
    longest
        Longer sentences, in characters, are split at the best border. None is no limit.
    """
    text = without_surrogates(text)
    language = without_surrogates(language or _guess(text)).partition("-")[0].lower()
    spans = []
    for start, end, is_whole in _blocks(text) if markdown else [(0, len(text), False)]:
        for span in [(start, end)] if is_whole else _sentences(text, start, end, language):
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
        # A panic in the library's Rust code is a BaseException.
        if type(error).__name__ != "PanicException":
            raise
        logger.warning("%d characters are treated as one sentence: %s", end - start, error)
        yield start, end
        return
    done = 0
    for border in borders:
        end = border["end_index"]
        if not _BEGINS_A_WORD.match(plain, max(0, end - 2)):
            yield start + done, start + end
            done = end


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, whole) of the Markdown blocks and of the text between them, in reading order."""
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
        # The text of a heading and the cells of a row are further tokens of the same lines.
        if end <= done:
            continue
        if in_table and token.type == "tr_open":
            start, in_table = done, False  # the line of dashes goes with the first row below it
        if start > done:
            yield done, start, False
        if token.type == "inline" and _ROWS.fullmatch(token.content):
            rows = [offset(line) for line in range(token.map[0], token.map[1] + 1)]
            yield from ((row, below, True) for row, below in pairwise(rows))
        else:
            yield max(start, done), end, token.type in _WHOLE
        done = end
    if done < len(text):
        yield done, len(text), False


@cache
def _parser() -> MarkdownIt:
    """Return a parser of blocks, including tables, that does not parse inline content."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.disable("inline")
    return parser


def _guess(text: str) -> str:
    """Return a language for the most frequent script of the first letters."""
    counts: dict[str, int] = {}
    letters = (character for character in text if character.isalpha())
    for _, letter in zip(range(_SAMPLE), letters, strict=False):
        script = "LATIN" if letter.isascii() else unicodedata.name(letter, "?").split()[0]
        counts[script] = counts.get(script, 0) + 1
    return _LANGUAGES.get(max(counts, key=lambda script: counts[script], default=""), "en")
