"""The text of a PDF, page by page, with every fault of the parser turned into a reason."""

from __future__ import annotations

import io
import logging
import re
import threading
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlrag.errors import DocumentError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

MAX_WARNINGS = 5

# The logger and the warning filters below belong to the whole process; parsing holds the interpreter anyway.
_LOCK = threading.Lock()
_DETAILS = re.compile(r"\{.*\}", re.DOTALL)


def extract_pages(
    data: bytes, doc_id: str, extractor: Callable[[bytes], Sequence[str]] | None = None
) -> tuple[list[str], tuple[str, ...]]:
    """Return one string a page, blank ones included, and the parser's remarks (unique, the first five).

    A PDF that opens with an empty password is read. Nothing that pypdf says reaches the terminal.

    Raises
    ------
    DocumentError
        The parser failed in any way; the reason holds what it said, and "encrypted" where a password is missing.
    """
    remarks: list[str] = []
    try:
        pages = _own_pages(extractor(data)) if extractor is not None else _pypdf_pages(data, remarks)
    except (KeyboardInterrupt, SystemExit):
        raise
    # BaseException, because the Rust code below cryptography panics with one that is no Exception.
    except BaseException as error:
        raise DocumentError(doc_id, _reason_of(error, custom=extractor is not None)) from error
    if not all(isinstance(page, str) for page in pages):
        raise DocumentError(doc_id, "pdf_extractor must return one string a page")
    return pages, _shortened(remarks, doc_id)


def _own_pages(found: Sequence[str]) -> list[str]:
    if isinstance(found, (str, bytes)):  # a string is a sequence of strings too, of one letter each
        raise TypeError("pdf_extractor must return a list with one string a page, not one string")
    return list(found)


def _pypdf_pages(data: bytes, remarks: list[str]) -> list[str]:
    with _kept(remarks):
        import pypdf

        reader = pypdf.PdfReader(io.BytesIO(data))
        return [page.extract_text() for page in reader.pages]


def _reason_of(error: BaseException, *, custom: bool) -> str:
    said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    if custom:
        return f"pdf_extractor failed: {said}"
    from pypdf.errors import DependencyError, FileNotDecryptedError

    if isinstance(error, DependencyError):
        return f"encrypted, and a package to decrypt it is missing: pip install 'pypdf[crypto]' ({said})"
    if isinstance(error, FileNotDecryptedError):
        return "encrypted: it needs a password; save a copy without one"
    if "encrypt" in str(error).lower():
        return f"encrypted in a way that cannot be read ({said})"
    return f"not a readable PDF ({said})"


@contextmanager
def _kept(remarks: list[str]) -> Iterator[None]:
    """Collect what pypdf logs or warns of, and keep it from the terminal."""
    handler = logging.Handler()
    handler.emit = lambda record: remarks.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("pypdf")
    with _LOCK, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        propagate = logger.propagate
        logger.addHandler(handler)
        logger.propagate = False
        try:
            yield
        finally:
            logger.removeHandler(handler)
            logger.propagate = propagate
            remarks += [str(warning.message) for warning in caught]


def _shortened(remarks: list[str], doc_id: str) -> tuple[str, ...]:
    """Return the remarks without the dumps of objects (they hold memory addresses), each once."""
    unique = list(dict.fromkeys(" ".join(_DETAILS.sub("…", remark).split())[:200] for remark in remarks))
    shown = [f"{doc_id}: {remark}" for remark in unique[:MAX_WARNINGS]]
    if len(unique) > MAX_WARNINGS:
        shown.append(f"{doc_id}: and {len(unique) - MAX_WARNINGS} more remarks of the PDF parser")
    return tuple(shown)
