"""The engines that read PDF, as a program of its own: ``python -IS pdf_worker.py FOLDER-OF-PACKAGES …``.

A PDF may make a parser take for ever, take all memory, or, in the C++ of PDFium, end the process; and PDFium must not
be called from two threads, also not by another library of the same process. So :mod:`sqlrag.ingest.readers.pdf` starts
this program and ends it when a document takes too long. Requests come on standard input, each a line of JSON and the
bytes of the document; each is answered by lines of JSON on standard output, one a page and a last one.

Which engine reads first was measured with ``python -m tests.bench.pdf`` on 1,902 public test files of ten projects. Of
the words that pdftotext finds, PDFium 159 found 89 % and pypdf 7.1 86 % (mean over the files), both together 94 %; of
the pairs of neighbouring words 80 and 77 %. PDFium took 19 s of CPU, pypdf 85 s, and 7 files more than 20 s each.
"""

from __future__ import annotations

import ctypes
import io
import json
import logging
import os
import re
import signal
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

MAX_MEMORY = 2 << 30

# PDFium's mark of a hyphen at the end of a line, after which it joins the lines.
_HYPHEN = re.compile("\ufffe(.?)")

_BLANKS = re.compile(r"\s+")

# Bits of /F: an annotation that is not displayed; and of /Ff: a field for a password.
_NOT_SHOWN, _PASSWORD = 0b100010, 1 << 13


class LimitError(Exception):
    """The document is larger than a limit."""


def answer(
    data: bytes, engine: str, max_pages: int, max_characters: int, numbers: Sequence[int] | None = None
) -> Iterator[dict[str, Any]]:
    """Yield what an engine reads of a PDF, page by page, and then what it says of the whole.

    Parameters
    ----------
    data
        The PDF.
    engine
        "pypdfium2" or "pypdf".
    max_pages, max_characters
        A document with more is not read on.
    numbers
        The pages to read, from 0; None: all.

    Yields
    ------
    dict
        Of each page its ``text``, blank where it could not be loaded; ``guessed``, the characters of it that no font
        maps to Unicode, for which the engine took the code; and whether the text is ``partial``: the page may have
        more. At the end ``title``, ``author``, ``remarks`` and the numbers of the pages with ``pictures`` and no text,
        which PDFium alone tells, or the ``error`` and its ``kind``: "password", "crypto",
        "encryption", "limit" or "unreadable".
    """
    whole: dict[str, Any] = {"title": "", "author": "", "remarks": [], "pictures": []}
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            characters = 0
            for text, guessed, partial in ENGINES[engine](data, whole, max_pages, numbers):
                characters += len(text)
                if characters > max_characters:
                    raise LimitError(
                        f"more than {max_characters:,} characters; split it or raise SQLRAG_MAX_CHARACTERS"
                    )
                yield {"text": text, "guessed": guessed, "partial": partial}
        whole["remarks"] += [str(warning.message) for warning in caught]
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    # BaseException, because the Rust code below cryptography panics with one that is not an Exception.
    except BaseException as error:
        name = "" if isinstance(error, LimitError) else f"{type(error).__name__}: "
        whole = {"error": " ".join(f"{name}{error}".split())[:300], "kind": _kind_of(error)}
    yield whole


def _kind_of(error: BaseException) -> str:
    if isinstance(error, LimitError):
        return "limit"
    name, message = type(error).__name__, str(error).lower()
    if name == "FileNotDecryptedError" or "incorrect password" in message:
        return "password"
    if name == "DependencyError":
        return "crypto"
    return "encryption" if "encrypt" in message or "security scheme" in message else "unreadable"


def _check_pages(count: int, max_pages: int) -> None:
    if count > max_pages:
        raise LimitError(f"{count:,} pages, the limit is {max_pages:,}; split it or raise SQLRAG_MAX_PAGES")


# PDFium.


def _pypdfium2(
    data: bytes, whole: dict[str, Any], max_pages: int, numbers: Sequence[int] | None
) -> Iterator[tuple[str, str, bool]]:
    import pypdfium2

    document = pypdfium2.PdfDocument(data)
    try:
        _check_pages(len(document), max_pages)
        document.init_forms()
        whole["title"], whole["author"] = (document.get_metadata_value(key) for key in ("Title", "Author"))
        for number in range(len(document)) if numbers is None else numbers:
            try:
                text, guessed, partial, pictured = _pdfium_text(document, number)
                whole["pictures"] += [number] * pictured
            except pypdfium2.PdfiumError as error:
                whole["remarks"].append(f"page {number + 1}: {error}")
                text, guessed, partial = "", "", True
            yield text, guessed, partial
    finally:
        document.close()


def _pdfium_text(document: Any, number: int) -> tuple[str, str, bool, bool]:
    """Return the text of a page as it is displayed, with its annotations and the values of its fields.

    With it come the characters that are a guess, whether the text may be a part of what the page has, and whether it
    has pictures and no text.
    """
    import pypdfium2.raw as pdfium

    page = document[number]
    try:
        notes, drawn = _pdfium_notes(document, page)
        if drawn and pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY) == pdfium.FLATTEN_SUCCESS:
            page.close()
            page = document[number]
        text_page = page.get_textpage()
        text, count = text_page.get_text_range(), text_page.count_chars()
        guessed = [
            chr(pdfium.FPDFText_GetUnicode(text_page, i)) if mistake == 1 else " "
            for i, mistake in enumerate(map(pdfium.FPDFText_HasUnicodeMapError, [text_page] * count, range(count)))
        ]
        partial = _is_partial(page)
        pictures = () if text.strip() else page.get_objects(filter=(pdfium.FPDF_PAGEOBJ_IMAGE,), max_depth=3)
        pictured = any(True for _ in pictures)
    finally:
        page.close()
    text = _HYPHEN.sub(lambda match: match[1] if match[1].islower() else f"-\n{match[1]}", text)
    return with_notes(text, notes), "".join(guessed).strip(), partial, pictured


def _is_partial(page: Any) -> bool:
    """Return whether most pieces of text have no extent: blanks do not, nor what PDFium leaves out."""
    import pypdfium2.raw as pdfium

    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    pieces = empty = 0
    for i in range(pdfium.FPDFPage_CountObjects(page)):
        piece = pdfium.FPDFPage_GetObject(page, i)
        if pdfium.FPDFPageObj_GetType(piece) == pdfium.FPDF_PAGEOBJ_TEXT:
            pieces += 1
            pdfium.FPDFPageObj_GetBounds(piece, left, bottom, right, top)
            empty += left.value == right.value
    return empty > 10 and 2 * empty > pieces


def _pdfium_notes(document: Any, page: Any) -> tuple[list[str], bool]:
    """Return the texts of annotations and fields, and whether a page has any that may be drawn."""
    import pypdfium2.raw as pdfium

    notes, drawn = [], False
    for i in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, i)
        if not annotation:
            continue
        subtype = pdfium.FPDFAnnot_GetSubtype(annotation)
        if subtype not in {pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_POPUP}:
            drawn = True
            if not pdfium.FPDFAnnot_GetFlags(annotation) & _NOT_SHOWN:
                notes.append(_pdfium_note(document.formenv, annotation, is_field=subtype == pdfium.FPDF_ANNOT_WIDGET))
        pdfium.FPDFPage_CloseAnnot(annotation)
    return notes, drawn


def _pdfium_note(form: Any, annotation: Any, *, is_field: bool) -> str:
    import pypdfium2.raw as pdfium

    if not is_field:
        return _utf16(lambda buffer, size: pdfium.FPDFAnnot_GetStringValue(annotation, b"Contents", buffer, size))
    if form is None or pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation) & _PASSWORD:
        return ""
    kind, drawn = pdfium.FPDFAnnot_GetFormFieldType(form, annotation), pdfium.FPDFAnnot_HasKey(annotation, b"AP")
    # The value of a choice need not be what is shown for it.
    chosen = kind in {pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX} and not drawn
    if kind != pdfium.FPDF_FORMFIELD_TEXTFIELD and not chosen:
        return ""
    return _utf16(lambda buffer, size: pdfium.FPDFAnnot_GetFormFieldValue(form, annotation, buffer, size))


def _utf16(get: Any) -> str:
    """Return a string of PDFium, which first says how many bytes it has."""
    import pypdfium2.raw as pdfium

    size = get(None, 0)
    buffer = ctypes.create_string_buffer(size)
    get(ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw[: max(0, size - 2)].decode("utf-16-le", "replace")


# pypdf.


def _pypdf(
    data: bytes, whole: dict[str, Any], max_pages: int, numbers: Sequence[int] | None
) -> Iterator[tuple[str, str, bool]]:
    import pypdf

    handler = logging.Handler()
    handler.emit = lambda record: whole["remarks"].append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("pypdf")
    propagate, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        pages = reader.pages
        _check_pages(len(pages), max_pages)
        with suppress(Exception):  # damaged metadata is no reason not to read the pages
            whole["title"], whole["author"] = (str(reader.metadata.get(key) or "") for key in ("/Title", "/Author"))  # type: ignore[union-attr]
        for number in range(len(pages)) if numbers is None else numbers:
            page = pages[number]
            yield with_notes(page.extract_text(), _pypdf_notes(page)), "", False
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate


def _pypdf_notes(page: Any) -> list[str]:
    notes = []
    with suppress(Exception):  # the text of the page is worth more than a damaged annotation
        for reference in page.get("/Annots") or ():
            annotation = reference.get_object()
            parent = annotation["/Parent"].get_object() if "/Parent" in annotation else {}
            kind, field = annotation.get("/Subtype"), {**parent, **annotation}
            if kind in {"/Link", "/Popup"} or int(annotation.get("/F", 0)) & _NOT_SHOWN:
                continue
            if kind == "/Widget" and (field.get("/FT") == "/Btn" or int(field.get("/Ff", 0)) & _PASSWORD):
                continue
            note = field.get("/V") if kind == "/Widget" else annotation.get("/Contents")
            notes.append(str(note) if isinstance(note, str) else "")
    return notes


ENGINES = {"pypdfium2": _pypdfium2, "pypdf": _pypdf}


def with_notes(text: str, notes: Iterable[str]) -> str:
    """Return the text of a page with the notes that it does not have, each once, in lines of their own."""
    seen, added = _BLANKS.sub("", text), []
    for note in notes:
        letters = _BLANKS.sub("", note)
        if letters and letters not in seen:
            added.append(note.strip())
            seen += f"\n{letters}"
    return "\n".join([*([text.rstrip()] if text.strip() else []), *added]) if added else text


def main() -> None:
    """Answer requests until standard input ends, which it does when the process that asks is gone."""
    sys.path += sys.argv[1:]
    answers = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # at a terminal it is sent to this process, too
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while line := sys.stdin.buffer.readline():
        request = json.loads(line)
        data = sys.stdin.buffer.read(request.pop("size"))
        seconds = request.pop("seconds")
        if hasattr(signal, "alarm"):  # whoever asks ends this earlier, unless that process is gone
            signal.alarm(int(seconds) + 60)
        for part in answer(data, **request):
            answers.write(json.dumps(part).encode("ascii") + b"\n")
            answers.flush()


if __name__ == "__main__":
    main()
