"""The text of a PDF, page by page, with every failure of the parsers turned into a reason.

PDFium (``pypdfium2``) reads first; pypdf reads what PDFium refuses, and the pages whose text is no text when PDFium has
read them. Both run in a process of their own, see :mod:`sqlrag.ingest.readers.pdf_worker`.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property
from typing import IO, Any, cast

from sqlrag.cancellation import Stopped, checkpoint
from sqlrag.errors import DocumentError
from sqlrag.ingest.readers import pdf_worker
from sqlrag.ingest.readers.sections import PAGE_BREAK, page_starts
from sqlrag.ingest.readers.text import kind_of
from sqlrag.locks import new_lock
from sqlrag.normalize import is_blank, normalize
from sqlrag.settings import Limits
from sqlrag.types import Document

PdfExtractor = Callable[[bytes], Sequence[str]]

MAX_WARNINGS = 5

MAX_NAME = 300

PAGE_SECONDS = 10  # for a page; that of a book takes a hundredth of a second

_START_SECONDS = 30

_NEEDS_OCR = "no extractable text; OCR needed"

_NO_MAP = "text cannot be decoded: its fonts have no map to Unicode, or a wrong one; OCR needed"


def read_pdf(data: bytes, doc_id: str, extractor: PdfExtractor | None = None) -> Document:
    """Return the text of a PDF, its pages joined by a blank line; its title and author are metadata.

    The limits are those of the environment, :meth:`sqlrag.settings.Limits.from_environment`. They do not hold for an
    ``extractor`` of the caller.

    Raises
    ------
    DocumentError
        It is not a PDF, needs a password, cannot be parsed, exceeds a limit, has no text, or its text cannot be
        decoded. Nothing that a parser prints reaches the terminal.
    """
    # Viewers accept a PDF that begins within the first 1,024 bytes.
    if b"%PDF-" not in data[:1024]:
        raise DocumentError(doc_id, f"the content is not a PDF: it is {kind_of(data) or 'something else'}")
    metadata: dict[str, str] = {}
    remarks: list[str] = []
    if extractor is None:
        pages, metadata, remarks = _Reading(data, doc_id, Limits.from_environment()).result()
    else:
        pages = _own_pages(data, doc_id, extractor)
    texts = [normalize(page).strip() for page in pages]
    if all(map(is_blank, texts)):
        raise DocumentError(doc_id, _NEEDS_OCR)
    return Document(
        doc_id,
        PAGE_BREAK.join(texts),
        metadata=metadata,
        page_starts=page_starts(texts),
        warnings=_shortened(remarks, doc_id),
    )


def _own_pages(data: bytes, doc_id: str, extractor: PdfExtractor) -> list[str]:
    try:
        found = extractor(data)
        if isinstance(found, (str, bytes)):  # a string is a sequence of strings too, of one letter each
            raise TypeError("pdf_extractor must return a list with one string a page, not one string")
        pages = list(found)
    except (KeyboardInterrupt, SystemExit, Stopped):
        raise
    # BaseException, because the Rust code below some packages panics with one that is not an Exception.
    except BaseException as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DocumentError(doc_id, f"pdf_extractor failed: {message}") from error
    if not all(isinstance(page, str) for page in pages):
        raise DocumentError(doc_id, "pdf_extractor must return one string a page")
    return pages


class _Reading:
    """The reading of one document."""

    def __init__(self, data: bytes, doc_id: str, limits: Limits) -> None:
        self.data = data
        self.doc_id = doc_id
        self.limits = limits
        # A small file that takes long was made to: a book has a kilobyte a page at least.
        self.seconds = limits.seconds * min(1.0, 0.05 + len(data) / 5e6)
        self.until = time.monotonic() + self.seconds

    def result(self) -> tuple[list[str], dict[str, str], list[str]]:
        """Return the pages, the metadata and the remarks."""
        found, whole = self._ask("pypdfium2")
        if whole.get("kind") in {None, "limit", "late"}:
            second = None
        else:
            second = self._ask("pypdf")
            if second[1].get("kind") != "unreadable" or whole["kind"] == "unreadable":
                found, whole = second
        if "kind" in whole:
            raise DocumentError(self.doc_id, self._reason_of(whole["kind"], whole["error"]))
        pages = [Page(part["text"], part["guessed"]) for part in found]
        if second is None:
            self._read_again(pages, [i for i, part in enumerate(found) if part["partial"]])
        remarks = [*self._without_garbage(pages), *whole["remarks"]]
        pictures = [number for number in whole["pictures"] if not pages[number].letters]
        if pictures:
            remarks.insert(0, f"{_named(pictures)}: pictures without text; OCR needed where they show some")
        metadata = {key: name for key in ("title", "author") if (name := _name(whole[key]))}
        return [page.text for page in pages], metadata, remarks

    def _ask(self, engine: str, numbers: Sequence[int] | None = None) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return the pages and what is said of the whole, as :func:`sqlrag.ingest.readers.pdf_worker.answer` does."""
        limits = {"max_pages": self.limits.pages, "max_characters": self.limits.characters}
        *pages, whole = _asked(self.data, self.until - time.monotonic(), engine=engine, numbers=numbers, **limits)
        return pages, whole

    def _reason_of(self, kind: str, message: str) -> str:
        reasons = {
            "limit": f"too large: {message}",
            "late": f"takes too long to read: {message or self._late()}",
            "password": "encrypted: it needs a password; save a copy without one",
            "crypto": f"encrypted, and a package to decrypt it is missing: pip install 'pypdf[crypto]' ({message})",
            "encryption": f"encrypted in a way that cannot be read ({message})",
        }
        return reasons.get(kind, f"not a readable PDF ({message})")

    def _late(self) -> str:
        return (
            f"more than {self.seconds:.3g} seconds for {len(self.data):,} bytes; split it or raise SQLRAG_MAX_SECONDS"
        )

    def _read_again(self, pages: list[Page], partial: Sequence[int]) -> None:
        """Replace the pages that are no text, and those of which there may be more, by what pypdf reads of them."""
        blank = not any(page.letters for page in pages)
        self._replace(pages, [i for i, page in enumerate(pages) if blank or page.is_garbage or page.is_glued])
        # Pieces without extent are mostly blanks: if it is so on the first pages, it is on the others.
        if not blank and self._replace(pages, partial[:3]):
            self._replace(pages, partial[3:])

    def _replace(self, pages: list[Page], numbers: Sequence[int]) -> bool:
        """Replace those of the pages that pypdf reads better; return whether it finds more on any."""
        found, _ = self._ask("pypdf", numbers) if numbers else ([], {})
        more = False
        for number, part in zip(numbers, found, strict=False):  # it may have failed at one of them
            page, other = pages[number], Page(part["text"], pages[number].guessed and part["text"])
            if other.is_better_than(page):
                pages[number] = other
            # Garbage, of which the other engine saw nothing.
            page.is_cut = other.is_garbage and other.letters > 1.5 * page.letters
            more |= page.is_cut or pages[number] is other
        return more

    def _without_garbage(self, pages: list[Page]) -> list[str]:
        """Blank the pages that are no text, and return remarks; raise where they are most of the document."""
        gone = [i for i, page in enumerate(pages) if page.garbage > _MOST]
        if 2 * sum(pages[i].letters for i in gone) > sum(page.letters for page in pages):
            raise DocumentError(self.doc_id, _NO_MAP)
        for i in gone:
            pages[i] = Page("")
        damaged = [i for i, page in enumerate(pages) if page.is_garbage or page.is_cut]
        glued = [i for i, page in enumerate(pages) if page.is_glued]
        odd = [i for i, page in enumerate(pages) if page.is_odd]
        return [
            *([f"{_named(gone)} left out: {_NO_MAP}"] if gone else []),
            *(
                [f"{_named(damaged)}: a part of the text cannot be decoded, and is garbage or missing"]
                if damaged
                else []
            ),
            *([f"{_named(glued)}: the words have no blanks between them"] if glued else []),
            *([f"{_named(odd)}: the words look like those of no language; the text may be garbage"] if odd else []),
        ]


def _named(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number + 1) for number in numbers[:10])
    return f"page{'s' * (len(numbers) > 1)} {shown}{' …' * (len(numbers) > 10)}"


def _name(text: str) -> str:
    """Return a title or author of the metadata, "" where it is none: a file name, a placeholder, garbage."""
    name = " ".join(normalize(text).split())
    if _NO_NAME.search(name) or not any(map(str.isalpha, name)) or len(name) > MAX_NAME or Page(name).is_garbage:
        return ""
    return name


_NO_NAME = re.compile(
    r"""(?ix) ^(?:untitled|unknown|unbenannt|sans\ titre|no\ title|title|document|dokument|presentation|slide)\W*\d*\W*$
    | ^(?:untitled\ -|microsoft\ (?:word|powerpoint|excel)\b|powerpoint\ presentation\b|adobe\ photoshop\b)
    | \.(?:docx?|dotx?|rtf|odt|pptx?|odp|xlsx?|ods|pdf|tex|dvi|ps|eps|indd|qxd|p65|fm|html?|txt|md|jpe?g|png|tiff?|ai)$
    | ^\(?(?:anonymous|unspecified|administrator|admin|user|owner)\)?$ | ^[a-z]:[\\/] | ^(?:file|https?):"""
)

_DETAILS = re.compile(r"\{.*\}", re.DOTALL)


def _shortened(remarks: Sequence[str], doc_id: str) -> tuple[str, ...]:
    """Return the remarks without the dumps of objects (they contain memory addresses), each once, the first five."""
    unique = list(dict.fromkeys(" ".join(_DETAILS.sub("…", remark).split())[:200] for remark in remarks))
    shown = [f"{doc_id}: {remark}" for remark in unique[:MAX_WARNINGS]]
    if len(unique) > MAX_WARNINGS:
        shown.append(f"{doc_id}: and {len(unique) - MAX_WARNINGS} more remarks of the PDF parser")
    return tuple(shown)


# Text that is none.

_SOME, _MOST = 0.1, 0.5  # of the characters of a page

_BLANKS_AT_END = re.compile(r"[^\S\n]+(?=\n)")

# Names of glyphs in place of characters, such as /G43/G68/G65.
_GLYPHS = re.compile(r"(?:/[A-Za-z.]{0,8}\d[0-9A-Fa-f]{0,4}|/[A-Za-z][A-F][0-9A-F]){4,}")

# Bullets of symbol fonts; letters of private use stand in groups.
_BULLET = re.compile("(?<!\\S)[\ue000-\uf8ff](?!\\S)")

_WORD = re.compile(r"[^\W\d_]{3,}")

# Letters of these stand in words of another script.
_MIXED = {
    "LATIN", "CJK", "GREEK", "MATHEMATICAL", "MODIFIER", "MICRO", "FULLWIDTH", "HALFWIDTH", "SUPERSCRIPT", "SCRIPT",
    "DOUBLE-STRUCK", "BLACK-LETTER", "FEMININE", "MASCULINE", "ALEF", "PLANCK", "OHM", "KELVIN", "ANGSTROM",
}  # fmt: skip

_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:[.,:/-]\d+)*|\S")

# Vowels and tones of Arabic, Hebrew, Thai and the scripts of India, which stand with a letter.
_MARKS = re.compile(
    "[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0e31\u0e34-\u0e4e]"
)

_LONG_WORD = re.compile(r"[^\W\d_]{40,}")

_VOWELS = frozenset("aeiouyæœøıαεηιουωаеиоуыэюяёіїє")

# They are 60 % of a text in Latin letters at least (Polish, Vietnamese), and 77 % of one in English.
_FREQUENT = "eainorstldum"

_WIDE = re.compile("[\u3400-\u9fff\uac00-\ud7a3]")

# KOI8 and Windows-1251 have the same letters in the other case.
_CYRILLIC = re.compile("[\u0400-\u052f]{4,}")

_ACCENTS = re.compile("[\u0300-\u036f]")

# The bytes of UTF-8 taken for those of Latin-1 or Windows-1252.
_DECODED_TWICE = re.compile("[\u00c2\u00c3][\u0080-\u00bf\u0152-\u0178\u2013-\u203a\u20ac\u2122]")

_LATIN = re.compile("[A-Za-zÀ-ÖØ-öø-ɏ\u1e00-\u1eff]+")

# Letters that are rare in every language, other than in a list of code points.
_RARE = re.compile("[\u0180-\u019f\u01a2-\u01ae\u01b1-\u01cc\u01dd-\u0217\u021c-\u02ff]")

_COMMON = (("gb2312", 0xB0, 0xD7), ("shift_jis", 0x88, 0x97), ("big5", 0xA4, 0xC6), ("euc_kr", 0xB0, 0xC8))

# Fonts often number their glyphs from that of the blank, 3, in the order of ASCII; without a map "Pump" is "3XPS".
_GLYPH_SHIFT = 29


class Page:
    """The text of a page, judged: ``guessed`` are those of its characters for which a font has no map to Unicode."""

    def __init__(self, text: str, guessed: str = "") -> None:
        self.text = _BLANKS_AT_END.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
        self.guessed = guessed
        self.is_cut = False  # known where a second engine has read it

    @cached_property
    def letters(self) -> int:
        """How many characters are not blank."""
        return len("".join(self.text.split()))

    @cached_property
    def garbage(self) -> float:
        """The share of the characters that are no text."""
        text = _BULLET.sub("", self.text)
        text = "".join((text if text.strip() else self.text).split())
        bad = 0 if text.isascii() and text.isprintable() else sum(map(_is_no_character, text))
        bad += sum(map(len, _GLYPHS.findall(text)))
        high = sum("\xa1" <= character <= "\xff" for character in text)
        # No language writes most of its words in these letters, but other encodings look so when taken for Latin-1.
        if high > 5 and high > 0.4 * sum(map(str.isalnum, text)):
            bad += high
        if not text.isascii():
            bad += sum(len(word) for word in _WORD.findall(self.text) if len({*map(_script, word)} - _MIXED) > 1)
        guessed = "".join(self.guessed.split())
        bad += len(guessed) if len(guessed) > _SOME * len(text) and not _is_readable(self.guessed) else 0
        return min(1.0, bad / max(1, len(text)))

    @property
    def is_garbage(self) -> bool:
        """Whether more than a tenth of the characters are no text."""
        return self.garbage > _SOME

    @cached_property
    def is_glued(self) -> bool:
        """Whether the words of a script with blanks have none between them."""
        glued = [word for word in _LONG_WORD.findall(self.text) if max(word) < "\u0e00"]
        return sum(map(len, glued)) > max(100, 0.3 * self.letters)

    @cached_property
    def is_odd(self) -> bool:
        """Whether the letters look like those of no language, as with a map to wrong letters."""
        words = [word for word in _LATIN.findall(self.text) if len(word) >= 4 and word[1:].islower()]
        if len(words) >= 20:
            letters = _ACCENTS.sub("", unicodedata.normalize("NFD", "".join(words).lower()))
            frequent = sum(map(letters.count, _FREQUENT))
            if sum(map(_has_vowels, words)) < 0.6 * len(words) or frequent < 0.55 * len(letters):
                return True
        wide = _WIDE.findall(self.text)
        if len(wide) >= 20 and sum(map(_is_common, wide)) < 0.7 * len(wide):
            return True
        words = _CYRILLIC.findall(self.text)
        inverted = sum(word[0].islower() and word[1:].isupper() for word in words)
        return (
            (inverted >= 3 and inverted > 0.03 * len(words))
            or len(_DECODED_TWICE.findall(self.text)) >= 3
            or 2 * len(_ACCENTS.findall(self.text)) > self.letters > 20
        )

    def is_better_than(self, other: Page) -> bool:
        """Whether this is text and the other is not, or is much less."""
        if self.is_garbage or (self.is_glued and not other.is_garbage) or self.letters < 0.3 * other.letters:
            return False
        return other.is_garbage or other.is_glued or self.letters > 1.5 * other.letters


def _is_no_character(character: str) -> bool:
    return character == "\ufffd" or unicodedata.category(character) in {"Cc", "Cn", "Co", "Cs"}


def _has_vowels(word: str) -> bool:
    vowels = sum(unicodedata.normalize("NFD", letter)[0] in _VOWELS for letter in word.lower())
    return 0.15 * len(word) < vowels < 0.85 * len(word)


def _is_readable(text: str) -> bool:
    """Return whether more than half of the characters stand in words and numbers."""
    good = count = 0
    for token in _TOKEN.findall(_MARKS.sub("", text)):
        count += len(token)
        good += len(token) if token[0].isdigit() else _readable_letters(token) if token[0].isalpha() else 0
    return 2 * good > count and not _is_shifted(text)


def _readable_letters(word: str) -> int:
    if _RARE.search(word) or len({_script(letter) for letter in word}) > 1:
        return 0
    if min(word) > "\u052f":
        return sum(_is_common(letter) for letter in word)
    if not (word.islower() or word.isupper() or word[1:].islower()):
        return 0
    if _LATIN.match(word) and 3 * sum(letter > "\x7f" for letter in word) > 2 * len(word):
        return 0
    return len(word) if len(word) < 4 or _has_vowels(word) else 0


@cache
def _script(letter: str) -> str:
    """Return the first word of its name, one for those that Chinese, Japanese and Korean mix."""
    script = unicodedata.name(letter, "").partition(" ")[0]
    return "CJK" if script in {"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "IDEOGRAPHIC"} else script


@cache
def _is_common(letter: str) -> bool:
    """Return whether a letter that is an ideograph or of Korean is one of the few thousand that texts are made of."""
    if not ("\u3400" <= letter <= "\u9fff" or "\uac00" <= letter <= "\ud7a3"):
        return not _is_no_character(letter)
    for encoding, first, last in _COMMON:
        with suppress(UnicodeError):
            if first <= letter.encode(encoding)[0] <= last:
                return True
    return False


def _is_shifted(text: str) -> bool:
    """Return whether a text has vowels only when the numbers of glyphs are taken for those of the characters."""
    letters = "".join(_LATIN.findall(text))
    there = "".join(chr(ord(character) + _GLYPH_SHIFT) for character in text if not character.isspace())
    words = _LATIN.findall(there)
    if not words or 2 * sum(map(str.islower, there)) < len(there):
        return False
    return 3 * len(letters) > len(there) and _share_of_vowels("".join(words)) > 0.25 > _share_of_vowels(letters)


def _share_of_vowels(letters: str) -> float:
    return sum(letter in _VOWELS for letter in letters.lower()) / len(letters)


# The process that reads.

# After so many documents it is replaced: a parser may leak.
_DOCUMENTS = 500

_idle: list[_Worker] = []

_lock = new_lock()


def _asked(data: bytes, seconds: float, **request: Any) -> list[dict[str, Any]]:
    """Return what :func:`sqlrag.ingest.readers.pdf_worker.answer` does; other kinds of errors are "late" and "died"."""
    if getattr(sys, "frozen", False) or not sys.executable:  # there is no Python to start, only the program itself
        with _lock:
            return list(pdf_worker.answer(data, **request))
    with _lock:
        worker = _idle.pop() if _idle else None
    if worker is not None and worker.process.poll() is not None:  # it was killed meanwhile
        worker.close()
        worker = None
    if worker is None:
        try:
            worker = _Worker()
        except OSError as error:
            return [{"error": f"the process that reads PDF cannot be started: {error}", "kind": "died"}]
    found = worker.ask(data, seconds, **request)
    with _lock:
        is_kept = worker.process.returncode is None and not _idle and worker.documents < _DOCUMENTS
        if is_kept:
            _idle.append(worker)
    if not is_kept:
        worker.end()
    return found


def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


def _forget_idle() -> None:
    """In a forked process: they belong to the process that was forked."""
    while _idle:
        worker = _idle.pop()
        worker.process.returncode = 0
        worker.close()


atexit.register(_end_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_idle)


class _Worker:
    """A process of :mod:`sqlrag.ingest.readers.pdf_worker`, for one document after the other."""

    def __init__(self) -> None:
        # The same packages as here, after Python's own: a site.py beside the caller's program is not for this one.
        path = [os.path.abspath(folder) for folder in sys.path]  # noqa: PTH100
        self.documents = 0
        self.process = subprocess.Popen(  # noqa: S603 - our own module
            [sys.executable, "-I", "-S", "-W", "ignore", pdf_worker.__file__, *path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.stdin, self.stdout = cast("IO[bytes]", self.process.stdin), cast("IO[bytes]", self.process.stdout)

    def ask(self, data: bytes, seconds: float, **request: Any) -> list[dict[str, Any]]:
        """Return its answer. Where there is no whole one, the kind of the error says why and the process has ended."""
        self.documents += 1
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        request |= {"size": len(data), "seconds": seconds}
        threading.Thread(target=self._exchange, args=(data, request, lines), daemon=True).start()
        until = time.monotonic() + seconds
        found: list[dict[str, Any]] = []
        page_until = time.monotonic() + PAGE_SECONDS + _START_SECONDS * (self.documents == 1)
        try:
            while (now := time.monotonic()) < min(until, page_until):
                checkpoint()
                with suppress(queue.Empty):
                    line = lines.get(timeout=min(0.05, min(until, page_until) - now))
                    if not line.endswith(b"\n"):
                        self.end()
                        return [{"error": "the parser crashed, or needs too much memory", "kind": "died"}]
                    found.append(json.loads(line))
                    if "text" not in found[-1]:
                        return found
                    page_until = time.monotonic() + PAGE_SECONDS
        except BaseException:
            self.end()
            raise
        self.end()
        slow = f"page {len(found) + 1} takes more than {PAGE_SECONDS} seconds" if page_until < until else ""
        return [*found, {"error": slow, "kind": "late"}]

    def _exchange(self, data: bytes, request: dict[str, Any], lines: queue.SimpleQueue[bytes]) -> None:
        line = b""
        with suppress(OSError, ValueError):  # the process has ended
            self.stdin.write(json.dumps(request).encode() + b"\n" + data)
            self.stdin.flush()
            while (line := self.stdout.readline()).startswith(b'{"text"'):
                lines.put(line)
        lines.put(line)

    def end(self) -> None:
        """End the process."""
        with suppress(OSError):
            self.process.kill()
        self.process.wait()
        self.close()

    def close(self) -> None:
        """Close its pipes, at which it ends."""
        for pipe in (self.stdin, self.stdout):
            with suppress(OSError, ValueError):
                pipe.close()
